from pathlib import Path

import pytest

import arrows

ROOT = Path(__file__).resolve().parents[2]


def check(write, includer, line, *others):
    """What the checker says of a tree in which one file has one include line."""
    for other in others:
        write(other)
    root = write(includer, f"#pragma once\n{line}\n").parents[len(includer.split("/")) - 1]
    return list(arrows.violations(root))


@pytest.mark.parametrize("module", arrows.MAY_INCLUDE)
@pytest.mark.parametrize("other", arrows.MAY_INCLUDE)
def test_every_pair_of_modules(write, module, other):
    found = check(write, f"include/penstock/{module}/a.h", f'#include "penstock/{other}/b.h"',
                  f"include/penstock/{other}/b.h")
    allowed = other == module or other in arrows.MAY_INCLUDE[module]
    assert found == [] if allowed else len(found) == 1


def test_what_a_module_may_include_is_closed():
    for module, allowed in arrows.MAY_INCLUDE.items():
        for other in allowed:
            assert arrows.MAY_INCLUDE[other] <= allowed, (module, other)


@pytest.mark.parametrize("line", [
    "#include <penstock/host/b.h>",
    '#include "host/private.h"',
    '#include "../../host/private.h"',
    '  #  include "../../host/private.h"  // why',
    "#include <penstock/host/absent.h>",
    '#include "penstock/penstock.h"',
])
@pytest.mark.parametrize("suffix", ["h", "cuh", "cpp", "cu"])
def test_every_way_to_reach_another_module(write, line, suffix):
    found = check(write, f"src/base/deep/a.{suffix}", line, "include/penstock/host/b.h",
                  "src/host/private.h", "include/penstock/penstock.h")
    assert len(found) == 1
    assert found[0].startswith(f"src/base/deep/a.{suffix}:2: base may not include")


@pytest.mark.parametrize("line", [
    "#include <vector>",
    "#include <host/vector>",
    '#include "penstock/version.h"',
    '#include "penstock_build.h"',
    '#include "host/local.h"',
    '// #include "penstock/host/b.h"',
])
def test_what_is_not_another_module(write, line):
    assert check(write, "src/base/a.cpp", line, "include/penstock/host/b.h",
                 "src/base/host/local.h") == []


def test_src_and_include_are_one_module(write):
    assert check(write, "src/base/a.cpp", '#include "penstock/base/b.h"',
                 "include/penstock/base/b.h") == []


def test_the_programs_may_include_everything(write):
    assert check(write, "cli/main.cpp", '#include "penstock/outofcore/b.h"',
                 "include/penstock/outofcore/b.h") == []


def test_a_module_without_an_arrow_is_refused(write, tmp_path):
    write("src/attic/a.cpp")
    assert list(arrows.violations(tmp_path)) == [
        "src/attic: no arrow says what this module may include"]


def test_this_tree():
    assert list(arrows.violations(ROOT)) == []
