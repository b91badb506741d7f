"""The README's examples are programs that the suite builds and runs, word for word."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("language, sources", [
    ("cpp", ["tests/consumer/main.cpp"]),
    ("python", ["examples/python/overlap.py", "examples/python/streamed.py"]),
])
def test_examples_are_the_tested_ones(language, sources):
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks == [(ROOT / source).read_text() for source in sources]
