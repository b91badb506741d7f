#!/usr/bin/env python3
"""Keeps the evidence of the last green GPU run, because CI has no GPU.

gpu_evidence.py hash            prints the hash of the sources that only a GPU can test: device code,
                                the host runtime, and the GPU tests themselves
gpu_evidence.py keep BUILT      after a green run: notes the hash in tests/gpu/green.txt, unless
                                BUILT, the hash that the tests were built from, is another
gpu_evidence.py show            says whether these sources are those of the last green run
gpu_evidence.py current         the same, and fails where they are not
"""

import datetime
import hashlib
import subprocess
import sys
from pathlib import Path

# Device code wherever it is, and every source of the folders that the GPU tests exercise.
COVERED = {
    ("include", "src", "examples"): ("*.cu", "*.cuh", "*_cuda.cpp"),
    ("include/penstock/host", "include/penstock/kit", "src/host", "src/kit", "tests/gpu"):
        ("*.cu", "*.cuh", "*.cpp", "*.h"),
}


def covered(root):
    for folders, patterns in COVERED.items():
        for folder in folders:
            for pattern in patterns:
                yield from (root / folder).rglob(pattern)


def device_hash(root):
    digest = hashlib.sha256()
    for path in sorted(set(covered(root))):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def gpu_name():
    try:
        command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        asked = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return asked.stdout.splitlines()[0]


def keep(root, built):
    now = device_hash(root)
    if built != now:
        return 1, "GPU evidence: not kept: the tests were built from other sources than these"
    gpu = gpu_name()
    if gpu is None:
        return 1, "GPU evidence: not kept: there is no GPU here, so the tests were skipped"
    day = datetime.datetime.now(datetime.timezone.utc).date()
    (root / "tests/gpu/green.txt").write_text(f"{now}\n{gpu}, {day}\n")
    return 0, "GPU evidence: wrote tests/gpu/green.txt; commit it"


def look(root):
    """Whether these sources were green on a GPU, in a word and in a sentence."""
    kept = root / "tests/gpu/green.txt"
    if not kept.is_file():
        return False, "GPU evidence: none yet: run 'make gpu-test' on a machine with a GPU"
    known, where = kept.read_text().splitlines()
    if known != device_hash(root):
        return False, f"GPU evidence: stale: the sources changed since the green run on {where}"
    return True, f"GPU evidence: these sources were green on {where}"


def main(arguments):
    root = Path(__file__).resolve().parent.parent
    match arguments:
        case ["hash"]:
            status, text = 0, device_hash(root)
        case ["keep", built]:
            status, text = keep(root, built)
        case ["show"]:
            status, text = 0, look(root)[1]
        case ["current"]:
            green, text = look(root)
            status = 0 if green else 1
        case _:
            status, text = 2, __doc__
    print(text)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
