"""Sets of buffers, used in turn, so many that none is in the cache when it is used again."""

from pathlib import Path
from typing import Any

from .. import _core
from ._arrays import poison, total_bytes
from ._operator import Call, Case

TIMES_THE_CACHE = 3
MOST_SETS = 2048  # tiny cases then fit into the cache, and their results say so


def cache_bytes(device: _core.Device) -> int:
    """The size of the last-level cache: L2 on a GPU, usually L3 on a CPU."""
    if device.kind == "cuda":
        return int(device.capabilities["l2_bytes"])
    sizes = [_kibibytes(file) for file in
             Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max([int(device.capabilities["l2_bytes"]), *(size * 1024 for size in sizes)])


def _kibibytes(file: Path) -> int:
    text = file.read_text().strip()
    return int(text[:-1]) if text.endswith("K") and text[:-1].isdigit() else 0


def sets_needed(set_bytes: int, cache: int) -> int:
    return min(MOST_SETS, TIMES_THE_CACHE * cache // max(set_bytes, 1) + 1)


class Rotation:
    """Sets of inputs and outputs that together are three times as large as the cache."""

    def __init__(self, case: Case, cache: int) -> None:
        self._cache = cache
        self._sets = [self._make(case, 0)]
        count = max(case.fewest_sets, sets_needed(total_bytes(self._sets[0]), cache))
        for number in range(1, count):
            self._sets.append(self._make(case, number))
        self._next = 0

    @staticmethod
    def _make(case: Case, number: int) -> tuple[Any, Any]:
        inputs = case.make_inputs(number)
        outputs = case.make_outputs(inputs)
        poison(outputs, 0xFF)  # memory that was never written has no physical pages yet
        return inputs, outputs

    def __len__(self) -> int:
        return len(self._sets)

    @property
    def bytes(self) -> int:
        return total_bytes(self._sets)

    @property
    def exceeds_the_cache(self) -> bool:
        return self.bytes > TIMES_THE_CACHE * self._cache

    def prepare(self, call: Call) -> None:
        """Lets a call that keeps something per set, such as a captured graph, make it now."""
        make = getattr(call, "prepare", None)
        if make is not None:
            for inputs, outputs in self._sets:
                make(inputs, outputs)

    def first(self, call: Call) -> None:
        """Calls with the first set."""
        call(*self._sets[0])

    def call(self, call: Call) -> None:
        """Calls with the next set. All callers share one order, so no set is used twice in a row."""
        inputs, outputs = self._sets[self._next]
        self._next = (self._next + 1) % len(self._sets)
        call(inputs, outputs)
