"""scripts/setup.sh with a stand-in for the package manager: each target of the Makefile installs only what it
needs, and a system without a package of a browser goes without one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The files `archive` and `installed` hold names of packages. `apt-get update` brings the lists.
APT_CACHE = """#!/bin/bash
[[ -e lists ]] || exit 0
grep -qxF -- "$2" archive && known=1.0 || known='(none)'
case $1 in
  madison) [[ $known == 1.0 ]] && echo "$2 | 1.0 | archive" ;;
  policy) printf '%s:\\n  Installed: (none)\\n  Candidate: %s\\n' "$2" "$known" ;;
esac
exit 0
"""
APT_GET = """#!/bin/bash
echo "$*" >>calls
if [[ $1 == update ]]; then touch lists; exit; fi
for argument in "${@:2}"; do
  [[ $argument == -* ]] && continue
  grep -qxF -- "$argument" archive || { echo "E: Package '$argument' has no installation candidate" >&2; exit 100; }
  echo "$argument" >>installed
done
"""
DPKG_QUERY = """#!/bin/bash
grep -qxF -- "${@: -1}" installed && echo -n "install ok installed"
"""
UBUNTU = """build-essential cmake ninja-build pkg-config python3 python3-dev python3-venv git libgtest-dev
libcli11-dev nlohmann-json3-dev libfmt-dev liburing-dev ccache clang-19 libclang-rt-19-dev llvm-19 libc++-19-dev
libc++abi-19-dev fonts-dejavu-core""".split()
BROWSER = ["chromium", "chromium-driver"]
LARGE = ["clang-19", *BROWSER]  # what few targets need


@pytest.fixture
def tree(write, tmp_path):
    for name, text in {"apt-cache": APT_CACHE, "apt-get": APT_GET, "dpkg-query": DPKG_QUERY,
                       "sudo": '#!/bin/bash\nexec "$@"\n'}.items():
        write(f"bin/{name}", text).chmod(0o755)
    for name in ("Makefile", "scripts/setup.sh", "scripts/fuzz.sh", "scripts/demo.sh", "scripts/exercise.sh",
                 "scripts/test.sh"):
        write(name)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("build", "format", "lint", "preset", "wheel"):
        write(f"scripts/{name}.sh", "#!/bin/bash\nexit 1\n").chmod(0o755)
    write("tests/gpu/exercises/1_copy.cpp")
    # The Python tools are there.
    write("scripts/requirements.txt", "pins\n")
    write("build/venv/installed.txt", "pins\n")
    write("installed")
    write("archive", "\n".join([*UBUNTU, *BROWSER]) + "\n")
    return tmp_path


def run(tree, *command):
    return subprocess.run(command, cwd=tree, capture_output=True, text=True,
                          env=os.environ | {"PATH": f"{tree}/bin:/usr/bin:/bin"})


def installed(tree):
    return (tree / "installed").read_text().split()


@pytest.mark.parametrize("target, expected", [
    ("demo", []), ("exercise", []), ("format", []), ("lint", []), ("wheel", []), ("fuzz", ["clang-19"]),
    ("test", LARGE)])
def test_a_target_installs_only_what_it_needs(tree, target, expected):
    run(tree, "make", target, "N=1")
    assert [package for package in LARGE if package in installed(tree)] == expected
    assert "python3" in installed(tree)
    assert ("build-essential" in installed(tree)) == (target != "format")
    assert ("python3-venv" in installed(tree)) == (target in ("format", "lint", "wheel", "test"))


def test_everything_is_installed_once(tree):
    assert run(tree, "scripts/setup.sh").returncode == 0
    assert sorted(installed(tree)) == sorted([*UBUNTU, *BROWSER])
    (tree / "calls").unlink()
    done = run(tree, "scripts/setup.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tree / "calls").exists()


def test_a_browser_that_the_archive_lacks_is_left_out(tree, write):
    write("archive", "\n".join(UBUNTU) + "\n")
    done = run(tree, "scripts/setup.sh")
    assert done.returncode == 0, done.stderr
    assert sorted(installed(tree)) == sorted(UBUNTU)
    sentence = ("setup: the archive of this system's packages has no chromium-driver; without another browser and "
                "its driver, the tests of the report's page are skipped\n")
    assert done.stdout.endswith(sentence)
    # The next call installs nothing, and needs no new lists.
    (tree / "calls").unlink()
    done = run(tree, "scripts/setup.sh")
    assert (done.returncode, done.stdout) == (0, sentence)
    assert not (tree / "calls").exists()
    # Targets that need no browser say nothing about it.
    assert run(tree, "scripts/setup.sh", "build", "python").stdout == ""
    # An archive that has it now.
    write("archive", "\n".join([*UBUNTU, *BROWSER]) + "\n")
    assert run(tree, "scripts/setup.sh").returncode == 0
    assert set(BROWSER) < set(installed(tree))
    assert not (tree / "build/no_browser.txt").exists()


@pytest.mark.parametrize("package", ["clang-19", "libgtest-dev"])
def test_other_packages_are_never_left_out(tree, write, package):
    write("archive", "\n".join({*UBUNTU, *BROWSER} - {package}) + "\n")
    done = run(tree, "scripts/setup.sh")
    assert done.returncode != 0
    assert f"E: Package '{package}' has no installation candidate" in done.stderr


def test_an_unknown_group_is_refused(tree):
    done = run(tree, "scripts/setup.sh", "brauser")
    assert done.returncode == 2
    assert done.stderr == "setup: expected build, python, clang or test, got 'brauser'\n"


@pytest.mark.parametrize("left_out, outcome, said", [
    (True, "1 skipped", "no browser: the archive has no chromium"),
    (False, "1 error", "no browser: the page's tests need one; scripts/setup.sh installs it")])
def test_without_a_browser_tests_of_the_page_are_skipped_only_where_it_was_left_out(
        tree, write, left_out, outcome, said):
    pytest.importorskip("selenium")
    for folder in ("tests/page", "src/trace/page"):
        shutil.copytree(ROOT / folder, tree / folder)
    if left_out:
        write("build/no_browser.txt", "the archive has no chromium\n")
    write("tests/page/a_test.py", "def test_a(screen):\n    pass\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "a_test.py"],
                          cwd=tree / "tests/page", capture_output=True, text=True,
                          env=os.environ | {"PATH": "/nowhere"})
    assert outcome in done.stdout and said in done.stdout, done.stdout + done.stderr
