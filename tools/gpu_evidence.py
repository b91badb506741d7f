#!/usr/bin/env python3
"""Records on what the sources last passed the GPU tests, because CI has no GPU.

gpu_evidence.py hash      prints the hash of the sources that the GPU tests cover
gpu_evidence.py keep HOW  after a run that passed: writes the hash to tests/gpu/green.txt, with the
                          compiler, the CUDA toolkit, the system, the GPU, the CPU, and the Python packages
                          of the tests. HOW is 'here' if the tests were built on this machine, or
                          'elsewhere'. Refuses if build/gpu was built from other sources.
gpu_evidence.py checked PART OUTCOME [HASH]
                          after a part of scripts/gpu_check.sh: writes its outcome ('clean', 'failed' or
                          'stopped') to tests/gpu/sanitizers.txt, with the day, the hash and the GPU.
                          HASH is that of the sources before they were built here; without it, what
                          build/gpu says.
gpu_evidence.py show      says whether the sources are those of the last run that passed, and of the last
                          run of each part under compute-sanitizer
"""

import datetime
import hashlib
import importlib.metadata
import platform
import re
import subprocess
import sys
from pathlib import Path

import benchmarks

# The page of src/trace/page, the type stubs and the documentation are not in it: no GPU test reads
# them.
CODE = ("*.cu", "*.cuh", "*.cpp", "*.h", "*.inc", "CMakeLists.txt")
COVERED = {
    ("include", "src", "examples", "tests/gpu"): CODE,
    ("python", "tests/bench", "tests/python", "tests/support"): (*CODE, "*.py", "pytest.ini"),
    ("cmake",): ("*.cmake", "*.in"),
}
NOT_COVERED = "without the page in src/trace/page, which no GPU test reads"
PARTS = ("memory", "races", "barriers", "uninitialised", "mistakes")  # of scripts/gpu_check.sh
PACKAGES = ("torch", "transformers", "accelerate")
INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")  # as /proc/cpuinfo calls them
SPACE = re.compile(r"(?<!\w)\s+|\s+(?!\w)")
COVERED_FILES = ("CMakeLists.txt", "CMakePresets.json", "tests/CMakeLists.txt")


def covered(root):
    yield from (path for name in COVERED_FILES if (path := root / name).is_file())
    for folders, patterns in COVERED.items():
        for folder in folders:
            for pattern in patterns:
                yield from (root / folder).rglob(pattern)


def source_hash(root):
    """Comments and layout of C++ and CUDA sources do not count."""
    digest = hashlib.sha256()
    for path in sorted(set(covered(root))):
        code = path.suffix in benchmarks.C_SUFFIXES
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update((bare(path.read_text()).encode() if code else path.read_bytes()) + b"\0")
    return digest.hexdigest()


def bare(text):
    """C++ without comments, and without white space that separates no words. Literals come last, as
    they are."""
    literals = []

    def placed(token):
        if token[0].startswith("/"):
            return " "
        literals.append(token[0])
        return '""'

    return "\0".join([SPACE.sub("", benchmarks.C_TOKEN.sub(placed, text)).strip(), *literals])


def gpu_name():
    try:
        command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        asked = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return asked.stdout.splitlines()[0].replace(", ", ", driver ")


def python_name():
    """This interpreter, which ran the Python tests, and the packages that they compare with."""
    packages = (f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return ", ".join([f"Python {platform.python_version()}", *packages])


def cpu_name(info=Path("/proc/cpuinfo")):
    """The CPU, and those of its instruction sets that the products on the CPU use."""
    lines = (line.partition(":") for line in info.read_text().splitlines())
    known = {name.strip(): value.strip() for name, _, value in lines}
    flags = known.get("flags", "").split()
    sets = [each for each in INSTRUCTION_SETS if each in flags]
    return f"{known.get('model name', 'unknown CPU')} with {', '.join(sets) or 'none of AVX2 and later'}"


def read_line(path):
    return path.read_text().strip() if path.is_file() else None


def today():
    return datetime.datetime.now(datetime.timezone.utc).date()


def keep(root, how):
    binaries = root / "build/gpu/bin"
    now, toolchain = source_hash(root), read_line(binaries / "toolchain.txt")
    if read_line(binaries / "sources.txt") != now or toolchain is None:
        return 1, "GPU evidence: not kept: build/gpu was built from other sources than these"
    gpu = gpu_name()
    if gpu is None:
        return 1, "GPU evidence: not kept: there is no GPU here, so the tests were skipped"
    if how == "here":
        build = f"built there with {toolchain}"
    else:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
        build = f"built elsewhere with {toolchain}, and copied to {system}"
    (root / "tests/gpu/green.txt").write_text(
        f"{now}\n{today()}: {gpu}; {cpu_name()}; {build}; {python_name()}; {NOT_COVERED}\n")
    return 0, "GPU evidence: wrote tests/gpu/green.txt; commit it"


def look(root):
    """Whether the sources passed on a GPU, in a sentence."""
    kept = root / "tests/gpu/green.txt"
    if not kept.is_file():
        return "GPU evidence: none yet: run 'make gpu-test' on a machine with a GPU"
    known, where = kept.read_text().splitlines()
    if known != source_hash(root):
        return f"GPU evidence: stale: the sources have changed since they passed on {where}"
    return f"GPU evidence: these sources passed on {where}"


def read_checks(root):
    """The last run of each part: the hash of its sources, and the rest of its line."""
    kept = root / "tests/gpu/sanitizers.txt"
    lines = kept.read_text().splitlines() if kept.is_file() else []
    return {part: (sources, rest) for part, sources, rest in (line.split(" ", 2) for line in lines)}


def checked(root, part, outcome, built):
    now = source_hash(root)
    if (built or read_line(root / "build/gpu/bin/sources.txt")) != now:
        return 1, f"Sanitizers: {part}: not recorded: build/gpu was built from other sources than these"
    gpu = gpu_name()
    if gpu is None:
        return 1, f"Sanitizers: {part}: not recorded: there is no GPU here"
    checks = read_checks(root) | {part: (now, f"{outcome} on {today()}: {gpu}")}
    (root / "tests/gpu/sanitizers.txt").write_text(
        "".join(f"{name} {sources} {rest}\n" for name, (sources, rest) in sorted(checks.items())))
    return 0, f"Sanitizers: {part}: wrote tests/gpu/sanitizers.txt; commit it"


def look_at_checks(root):
    """What is known of each part, one line each."""
    checks, now = read_checks(root), source_hash(root)
    for part in dict.fromkeys((*PARTS, *checks)):
        if part not in checks:
            yield f"Sanitizers: {part}: never recorded"
            continue
        sources, rest = checks[part]
        yield f"Sanitizers: {part}: {rest}" + ("" if sources == now else "; stale: the sources have changed")


def main(arguments):
    root = Path(__file__).resolve().parent.parent
    match arguments:
        case ["hash"]:
            status, text = 0, source_hash(root)
        case ["keep", ("here" | "elsewhere") as how]:
            status, text = keep(root, how)
        case ["show"]:
            status, text = 0, "\n".join([look(root), *look_at_checks(root)])
        case ["checked", part, ("clean" | "failed" | "stopped") as outcome, *built] if len(built) < 2:
            status, text = checked(root, part, outcome, built[0] if built else None)
        case _:
            status, text = 2, __doc__
    print(text)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
