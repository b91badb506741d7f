"""The cores of the CPU."""

import os


def threads() -> int:
    """The cores that this process may use; the library uses all of them."""
    return len(os.sched_getaffinity(0))
