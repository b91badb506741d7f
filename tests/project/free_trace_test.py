"""With the in-kernel trace off, the machine code is identical to that of a kernel without it."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("free_trace.cu")
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def machine_code(cubin):
    """What each kernel of an ELF file is in machine code, by its mangled name."""
    data = cubin.read_bytes()
    at, = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<3H", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, at + size * i) for i in range(count)]
    text = sections[names][4]

    def name(section):
        begin = text + section[0]
        return data[begin:data.index(b"\0", begin)].decode()

    return {name(section).removeprefix(".text."): data[section[4]:section[4] + section[5]]
            for section in sections if name(section).startswith(".text.")}


@pytest.mark.skipif(not NVCC, reason="no nvcc")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_switched_off_it_is_not_there(tmp_path, architecture):
    cubin = tmp_path / "free_trace.cubin"
    subprocess.run([NVCC, "-std=c++17", f"-arch={architecture}", f"-I{ROOT / 'include'}", "-cubin",
                    "-o", cubin, SOURCE], check=True)
    code = machine_code(cubin)
    off, = (bytes_ for name, bytes_ in code.items() if "with_traceILb0E" in name)
    on, = (bytes_ for name, bytes_ in code.items() if "with_traceILb1E" in name)
    without, = (bytes_ for name, bytes_ in code.items() if "without" in name)
    assert len(without) > 100
    assert off == without
    assert len(on) > len(off)
