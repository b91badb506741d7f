"""Warnings are errors in the project's presets, and in nobody else's build."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONSUMER = f"""\
cmake_minimum_required(VERSION 3.25)
project(Consumer CXX)
add_subdirectory("{ROOT}" penstock)
add_library(warns OBJECT warns.cpp)
target_link_libraries(warns PRIVATE penstock_flags)
"""


def compile_with_a_warning(folder, *options):
    """A file that warns, with the flags of Penstock's own sources, in a project that includes it."""
    (folder / "CMakeLists.txt").write_text(CONSUMER)
    (folder / "warns.cpp").write_text("int f(int unused) { return 0; }\n")
    subprocess.run(["cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja",
                    "-DPENSTOCK_CUDA=OFF", *options], check=True)
    return subprocess.run(["ninja", "-C", folder / "build", "warns"], capture_output=True, text=True)


def test_a_consumers_build_only_warns(tmp_path):
    done = compile_with_a_warning(tmp_path)
    assert done.returncode == 0
    assert "unused parameter" in done.stdout


def test_with_the_presets_option_it_fails(tmp_path):
    done = compile_with_a_warning(tmp_path, "-DPENSTOCK_WERROR=ON")
    assert done.returncode != 0
    assert "-Werror" in done.stdout


def presets():
    return {preset["name"]: preset
            for preset in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}


def option(name, variable):
    """A preset's value of a cache variable: its own, or that of the first parent which has one."""
    preset = presets()[name]
    if variable in preset.get("cacheVariables", {}):
        return preset["cacheVariables"][variable]
    parents = preset.get("inherits", [])
    values = [option(parent, variable)
              for parent in ([parents] if isinstance(parents, str) else parents)]
    return next((value for value in values if value is not None), None)


@pytest.mark.parametrize("preset,value", [
    ("cpu", "ON"), ("gpu", "ON"), ("asan", "ON"), ("tsan", "ON"), ("fuzz", "ON"),
    ("demo-cpu", "OFF"), ("demo-gpu", "OFF"),  # for people who see Penstock for the first time
])
def test_presets(preset, value):
    assert option(preset, "PENSTOCK_WERROR") == value


def test_the_python_package_is_built_without_it():
    assert "PENSTOCK_WERROR" not in (ROOT / "pyproject.toml").read_text()
