"""A build as docs/building.md describes it, without the project's presets."""

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_GOOGLETEST = "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON"


def configure(build, *options):
    return subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DPENSTOCK_CUDA=OFF", *options],
                          capture_output=True, text=True)


def targets(build):
    printed = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True, text=True,
                             check=True).stdout
    return set(re.findall(r"^([\w-]+): phony", printed, re.MULTILINE))


def test_without_googletest_the_tests_alone_are_left_out(tmp_path):
    done = configure(tmp_path, WITHOUT_GOOGLETEST)
    assert done.returncode == 0, done.stderr
    assert ("-- Penstock: building without tests: GoogleTest was not found (Debian and Ubuntu: apt-get install "
            "libgtest-dev)\n") in done.stdout
    found = targets(tmp_path)
    assert {"penstock", "penstock_cli", "penstock_ladder"} <= found
    assert "test_host" not in found


def test_with_googletest_the_tests_are_built(tmp_path):
    done = configure(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "building without tests" not in done.stdout
    assert {"penstock_cli", "test_host"} <= targets(tmp_path)


def test_tests_that_were_asked_for_are_not_left_out(tmp_path):
    done = configure(tmp_path, "-DPENSTOCK_TESTS=ON", WITHOUT_GOOGLETEST)
    assert done.returncode != 0
    assert "PENSTOCK_TESTS=ON, but GoogleTest was not found" in " ".join(done.stderr.split())


def test_the_presets_ask_for_tests():
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    values = {preset["name"]: preset.get("cacheVariables", {}).get("PENSTOCK_TESTS") for preset in presets}
    assert values["base"] == "ON"
    assert {name for name, value in values.items() if value == "OFF"} == {"demo", "fuzz"}


def test_what_was_built_is_installed(tmp_path):
    """After `--target penstock_cli`, for which files stand in here, without the ladders."""
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    assert configure(build).returncode == 0
    (build / "bin").mkdir(exist_ok=True)
    for name in ("libpenstock.so.0.1", "libpenstock.so", "penstock"):
        (build / "bin" / name).write_text(name)
    done = subprocess.run(["cmake", "--install", build, "--prefix", prefix], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (prefix / "bin").iterdir()] == ["penstock"]
    assert (prefix / "include/penstock/version.h").exists()


def test_the_page_lists_every_option():
    """PENSTOCK_* options and cache entries that a user may set."""
    declared = set()
    for path in [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")]:
        declared |= set(re.findall(r"^\s*(?:option\((PENSTOCK_\w+)|set\((PENSTOCK_\w+) [^)]*?CACHE|"
                                   r"find_program\((PENSTOCK_CCACHE))", path.read_text(), re.MULTILINE))
    declared = {"".join(names) for names in declared}
    assert len(declared) > 10
    table = re.findall(r"^\| (`PENSTOCK_.*?) \|", (ROOT / "docs/building.md").read_text(), re.MULTILINE)
    listed = set(re.findall(r"`(\w+)`", " ".join(table)))
    assert declared - listed == set() and listed - declared == set()
