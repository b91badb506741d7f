"""The C++ examples of the pages below are part of tests, which compile and run them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = [ROOT / "tests/ops/documented_test.cpp", ROOT / "tests/gpu/transform_template_test.cu",
         ROOT / "tests/weights/documented_test.cpp", ROOT / "tests/outofcore/documented_test.cpp",
         ROOT / "tests/host/documented_test.cpp", ROOT / "tests/consumer/main.cpp"]
PAGES = [*sorted((ROOT / "docs/ops").glob("*.md")), ROOT / "docs/weights.md",
         ROOT / "docs/runtime.md"]
BLOCKS = [(page.stem, block) for page in PAGES
          for block in re.findall(r"```cpp\n(.*?)```", page.read_text(), re.DOTALL)]


def without_layout(text):
    return "".join(text.split())


def test_pages_have_examples():
    assert {"resample", "runtime", "transform", "weights"} <= {page for page, _ in BLOCKS}


@pytest.mark.parametrize("page, block", BLOCKS, ids=[f"{page}-{i}" for i, (page, _) in
                                                     enumerate(BLOCKS)])
def test_example_is_part_of_a_test(page, block):
    sources = [without_layout(path.read_text()) for path in TESTS]
    assert any(without_layout(block) in source for source in sources), block
