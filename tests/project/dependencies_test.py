"""fmt, nlohmann-json and CLI11: installed, from a folder, or an error that names them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ["cmake", "-S", ROOT, "-G", "Ninja", "-DPENSTOCK_CUDA=OFF", "-DPENSTOCK_TESTS=OFF"]
HEADERS = {"FMT": "fmt", "NLOHMANN_JSON": "nlohmann", "CLI11": "CLI"}


@pytest.fixture
def sources(tmp_path):
    """Folders as the releases have them, made of the installed headers."""
    for package, headers in HEADERS.items():
        installed = Path("/usr/include") / headers
        if not installed.exists():
            pytest.skip(f"{installed} does not exist")
        include = tmp_path / package / "include"
        include.mkdir(parents=True)
        (include / headers).symlink_to(installed)
    (tmp_path / "FMT/src").mkdir()
    shutil.copy(ROOT / "cmake/fmt.cpp", tmp_path / "FMT/src/format.cc")
    return tmp_path


def test_sources_in_a_folder_are_used(sources, tmp_path):
    build = tmp_path / "build"
    folders = [f"-DFETCHCONTENT_SOURCE_DIR_{package}={sources / package}" for package in HEADERS]
    hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON"
              for package in ("fmt", "nlohmann_json", "CLI11")]
    subprocess.run([*PLAIN, "-B", build, *folders, *hidden], check=True)
    commands = (build / "compile_commands.json").read_text()
    for package in HEADERS:
        assert f"-isystem {sources / package}/include" in commands
    # A source that formats, and fmt itself.
    objects = ["CMakeFiles/penstock_fmt.dir/", "src/CMakeFiles/penstock.dir/base/units.cpp.o"]
    objects[0] += f"{str(sources / 'FMT/src/format.cc.o').lstrip('/')}"
    subprocess.run(["ninja", "-C", build, *objects], check=True)


def configure_offline(build, *options):
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    return subprocess.run([*PLAIN, "-B", build, *options], capture_output=True, text=True,
                          env=os.environ | nowhere)


@pytest.mark.parametrize("package", ["fmt", "nlohmann_json", "CLI11"])
def test_without_them_the_error_names_the_packages(tmp_path, package):
    done = configure_offline(tmp_path, f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON")
    assert done.returncode != 0
    message = " ".join(done.stderr.split())
    assert "Penstock needs fmt, nlohmann-json and CLI11." in message
    assert f"{package} is not installed, and downloading https://github.com/" in message
    assert "apt-get install libfmt-dev nlohmann-json3-dev libcli11-dev" in message
    assert f"-DFETCHCONTENT_SOURCE_DIR_{package.upper()}" in message


def test_a_folder_without_headers_is_refused(tmp_path):
    done = configure_offline(tmp_path / "build", f"-DFETCHCONTENT_SOURCE_DIR_FMT={tmp_path}")
    assert done.returncode != 0
    assert f"FETCHCONTENT_SOURCE_DIR_FMT is '{tmp_path}'" in " ".join(done.stderr.split())


def test_cmake_and_ninja_come_from_pypi_where_they_are_missing(tmp_path):
    ask = "from scikit_build_core.build import get_requires_for_build_wheel as ask; print(*ask({}))"
    python = shutil.which("python3", path=str(ROOT / "build/venv/bin"))
    done = subprocess.run([python, "-c", ask], cwd=ROOT, env={"PATH": str(tmp_path)},
                          capture_output=True, text=True, check=True)
    assert "cmake>=3.25" in done.stdout
    assert "ninja>=" in done.stdout
