"""The program `penstock`, which lies beside this file: runs it in place of Python."""

import os
import sys
from pathlib import Path


def main() -> None:
    os.environ.setdefault("PENSTOCK_PYTHON", sys.executable)  # that has this package, for `bench`
    os.execv(Path(__file__).with_name("penstock"), ["penstock", *sys.argv[1:]])


if __name__ == "__main__":
    main()
