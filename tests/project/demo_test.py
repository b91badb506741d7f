"""scripts/demo.sh with stand-ins for the driver's nvidia-smi and the toolkit's nvcc: which build it chooses, and
what it says where a GPU is not used."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKS = "#!/bin/bash\nexit 0\n"
FAILS = "#!/bin/bash\nexit 1\n"


def nvcc(version, links):
    return f"""#!/bin/bash
if [[ $1 == --version ]]; then echo "Cuda compilation tools, release {version}, V{version}.7"; exit; fi
exit {0 if links else 1}
"""


@pytest.fixture
def run(write, tmp_path):
    """Runs the script with programs of these texts on PATH; what it printed."""
    for name in ("demo", "preset"):
        path = write(f"scripts/{name}.sh")
        shutil.copy(ROOT / f"scripts/{name}.sh", path)
    write("scripts/setup.sh", WORKS).chmod(0o755)
    write("scripts/build.sh", "#!/bin/bash\necho build $1\n").chmod(0o755)
    for preset in ("demo-cpu", "demo-gpu"):
        write(f"build/{preset}/bin/penstock", WORKS).chmod(0o755)

    def run_with(**programs):
        for name, text in programs.items():
            write(f"bin/{name.replace('_', '-')}", text).chmod(0o755)
        done = subprocess.run(["scripts/demo.sh"], cwd=tmp_path, capture_output=True, text=True,
                              env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "CUDA_HOME": "/nowhere"})
        assert done.returncode == 0, done.stderr
        *said, summary = done.stdout.splitlines()
        assert summary.startswith("demo: installing packages took")
        return said

    return run_with


def test_a_gpu_with_its_toolkit_is_used(run):
    assert run(nvidia_smi=WORKS, nvcc=nvcc("12.8", links=True)) == ["build demo-gpu"]


def test_a_toolkit_without_a_gpu_is_not_used(run):
    assert run(nvidia_smi=FAILS, nvcc=nvcc("12.8", links=True)) == ["build demo-cpu"]


@pytest.mark.parametrize("programs, reason", [
    ({}, "no CUDA toolkit was found (/nowhere/bin/nvcc does not run)"),
    ({"nvcc": nvcc("12.4", links=True)}, "the CUDA toolkit is too old ({bin}/nvcc is 12.4, older than 12.8)"),
    ({"nvcc": nvcc("12.8", links=False)},
     "the CUDA toolkit does not work ({bin}/nvcc cannot build an empty program)")])
def test_a_gpu_that_is_not_used_is_explained(run, tmp_path, programs, reason):
    assert run(nvidia_smi=WORKS, **programs) == [
        f"demo: the GPU is not used, because {reason.format(bin=tmp_path / 'bin')}", "build demo-cpu"]
