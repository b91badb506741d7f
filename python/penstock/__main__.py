"""Replaces the Python process by the program `penstock`, which is installed next to this file."""

import os
import sys
from pathlib import Path


def main() -> None:
    os.environ.setdefault("PENSTOCK_PYTHON", sys.executable)  # for `bench`
    os.execv(Path(__file__).with_name("penstock"), ["penstock", *sys.argv[1:]])


if __name__ == "__main__":
    main()
