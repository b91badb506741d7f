#!/usr/bin/env python3
"""Checks that every public header compiles alone, twice over, and without help from CUDA.

headers.py --cxx COMPILER --include FOLDER...                     the .h files
headers.py --cxx CLANG --libcxx --include FOLDER...               the same with libc++
headers.py --nvcc NVCC --cuda-include FOLDER --include FOLDER...  host/cuda.h and the .cuh files
"""

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NEEDS_CUDA = "penstock/host/cuda.h"
# Kernel writers may still be at C++17. The matrix-product engine has concepts and is C++20, as the
# library is.
DEVICE_CODE = "penstock/kit/"
ENGINE = "penstock/kit/gemm/"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
# Without the headers that libc++'s own include for old programs' sake, so that a missing include
# shows. What libc++ 19 counts as experimental (std::stop_token) is C++20.
LIBCXX = ["-stdlib=libc++", "-fexperimental-library", "-D_LIBCPP_REMOVE_TRANSITIVE_INCLUDES"]
# A toolkit may sit on the compiler's default path; these stand in front of its headers.
FORBIDDEN = ("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "driver_types.h", "vector_types.h",
             "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h")


def public_headers(folders):
    for folder in folders:
        for path in sorted((folder / "penstock").rglob("*")):
            if path.suffix in (".h", ".cuh"):
                yield path.relative_to(folder).as_posix()


def forbid_cuda(folder):
    for name in FORBIDDEN:
        (Path(folder) / name).write_text("#error this header may not need CUDA\n")


def commands(args, no_cuda):
    """Pairs of a header and the command that compiles it from standard input."""
    library = LIBCXX if args.libcxx else []
    host = ["-std=c++20", *library, "-fsyntax-only", *WARNINGS, "-x", "c++", "-"]
    for header in public_headers(args.include):
        is_cuda = header.endswith(".cuh") or header == NEEDS_CUDA
        if is_cuda != bool(args.nvcc):
            continue
        if header.endswith(".cuh"):
            older = header.startswith(DEVICE_CODE) and not header.startswith(ENGINE)
            yield header, [args.nvcc, f"-std=c++{17 if older else 20}",
                           "-gencode=arch=compute_90a,code=sm_90a", "-Werror=all-warnings",
                           "-Xcompiler=-Wall,-Wextra", "-x", "cu", "-c", "-o", os.devnull, "-"]
        elif is_cuda:
            yield header, [args.cxx, "-isystem", args.cuda_include, *host]
        else:
            yield header, [args.cxx, f"-I{no_cuda}", *host]


def compile_alone(header, command, include):
    folders = [f"-I{folder}" for folder in include]
    done = subprocess.run([command[0], *folders, *command[1:]],
                          input=f'#include "{header}"\n' * 2, capture_output=True, text=True)
    return header, done.returncode, done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--libcxx", action="store_true")
    parser.add_argument("--nvcc", default="")
    parser.add_argument("--cuda-include", default="")
    parser.add_argument("--include", type=Path, nargs="+", required=True)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()

    failed = 0
    with tempfile.TemporaryDirectory() as no_cuda, ThreadPoolExecutor(args.jobs) as pool:
        forbid_cuda(no_cuda)
        work = list(commands(args, no_cuda))
        for header, status, output in pool.map(
                lambda item: compile_alone(*item, args.include), work):
            if status != 0:
                failed += 1
                print(f"{header} does not compile alone:\n{output}")
    print(f"headers: {len(work) - failed} of {len(work)} compile alone")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
