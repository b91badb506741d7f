"""Peers whose wheels are unpacked in the folder $PEERS instead of being installed."""

import os
import sys
from pathlib import Path


def needed(distribution: str) -> str:
    """Why a peer is absent."""
    return f"set PEERS to a folder with the unpacked wheels of {distribution} and what it needs"


def version(package: str, distribution: str) -> str | None:
    """The version of a package of that folder, or None if it is not there. `distribution` is its name in
    file names. Puts the folder on the path, and imports nothing."""
    if "PEERS" not in os.environ:
        return None
    folder = Path(os.environ["PEERS"])
    if not (folder / package).is_dir():
        return None
    # CUTLASS's Python packages, which peers need, are in a folder of their wheel.
    new = [str(path) for path in (folder, folder / "nvidia_cutlass_dsl/python_packages")
           if str(path) not in sys.path]
    sys.path[:0] = new
    info = next(folder.glob(f"{distribution}-*.dist-info"), None)
    return "of unknown version" if info is None else info.name.split("-")[1].removesuffix(".dist")
