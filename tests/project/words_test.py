import subprocess
import sys

import pytest

import words


@pytest.mark.parametrize("line", [
    "see /" + "work/notes.txt",
    '"/' + 'work/main"',
    "// TO" + "DO: later",
    "# FIX" + "ME",
])
def test_refused(write, tmp_path, line):
    write("a.txt", f"fine\n{line}\n")
    found = list(words.violations(tmp_path, ["a.txt"]))
    assert len(found) == 1 and found[0].startswith("a.txt:2: ")


@pytest.mark.parametrize("line", [
    "the work/ folder",
    "../" + "work/notes.txt",
    "home/work/",
    "METHODOLOGY",
])
def test_accepted(write, tmp_path, line):
    write("a.txt", line)
    assert list(words.violations(tmp_path, ["a.txt"])) == []


def test_binary_and_absent_files_are_passed_over(write, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\0 TO" + b"DO")
    assert list(words.violations(tmp_path, ["a.bin", "gone.txt"])) == []


@pytest.mark.parametrize("line, usual", [
    ("both run by turns", "interleaved"),
    ("copies are under way", "in flight"),
    ("bytes on their way", "in flight"),
    ("the wanted times", "target time"),
    ("16 bytes a lane", "... per ..."),
    ("2 blocks an SM", "... per ..."),
])
def test_pages_use_the_usual_terms(write, tmp_path, line, usual):
    write("page.md", f"# Title\n\n{line}\n")
    write("code.cpp", f"// {line}\n")
    found = list(words.violations(tmp_path, ["page.md", "code.cpp"]))
    assert len(found) == 1 and found[0].startswith(f"page.md:3: write '{usual}'")


@pytest.mark.parametrize("name", ["include/penstock/ops/a.h", "python/penstock/a.py"])
def test_headers_and_the_package_use_the_usual_terms(write, tmp_path, name):
    write(name, "or on its way there\n")
    assert [line.split(" instead")[0] for line in words.violations(tmp_path, [name])] == [
        f"{name}:1: write 'in flight'"]


def test_strings_of_the_program_use_the_usual_terms(write, tmp_path):
    write("cli/a.cpp", '// by turns\nprint("by turns");\n')
    assert len(list(words.violations(tmp_path, ["cli/a.cpp"]))) == 1


def test_strings_of_ladders_use_the_usual_terms(write, tmp_path):
    write("examples/copy/01_plain.cu", '// 16 bytes a load, by turns.\n#include "a.h"\n'
          'RUNG("plain", "Several loads on their way.",\n     "16 bytes a lane");\n')
    assert [line.split(" instead")[0] for line in words.violations(
        tmp_path, ["examples/copy/01_plain.cu"])] == [
            "examples/copy/01_plain.cu:3: write 'in flight'",
            "examples/copy/01_plain.cu:4: write '... per ...'"]


def test_this_tree():
    done = subprocess.run([sys.executable, words.__file__], capture_output=True, text=True)
    if done.returncode == words.NO_REPOSITORY:
        pytest.skip("not a git repository")
    assert done.returncode == 0, done.stdout
