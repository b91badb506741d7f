"""The examples in README.md are programs and kernels that the test suites build and run, word for word."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_examples_are_tested_files():
    assert blocks("python") == [(ROOT / f"examples/python/{name}.py").read_text()
                                for name in ("resampling", "overlap")]


def test_the_kernel_is_the_tested_one():
    tested = (ROOT / "tests/gpu/kit_readme_sm90_test.cu").read_text()
    parts = re.findall(r"// \[readme\]\n(.*?)// \[/readme\]", tested, re.DOTALL)
    assert blocks("cuda") == ["\n".join(parts)]
