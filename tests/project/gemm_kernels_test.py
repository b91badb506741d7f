"""docs/tune.md names the kernels of gemm that the estimate leaves out."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_names_the_kernels_that_are_not_measured():
    shapes = re.findall(r"GemmShape\{(.*?)\}", (ROOT / "src/ops/gemm/choice.h").read_text(), re.DOTALL)
    left_out = {re.search(r'"(\w+)"', shape)[1] for shape in shapes if ".measured = false" in shape}
    named = set(re.findall(r"`(sm90_\w+)`", (ROOT / "docs/tune.md").read_text()))
    assert left_out and named == left_out
