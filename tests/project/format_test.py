"""clang-format leaves code examples and tables in comments as they are."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLANG_FORMAT = ROOT / "build" / "venv" / "bin" / "clang-format"

LONG_LINE = 'auto up = pipeline.stage("upload", {.after = {read}, .uses = {in}}, [&](ps::Item& item) {'
EXAMPLE = f"""// What this is.
//
//   {LONG_LINE}  // why
//     ps::copy(item.slot(work), item.slot(in), item.stream());
//   }});
//
//   name      one line of a table
//   a longer  another one, which goes past the column limit if it is laid out with its neighbours
int x;
"""


@pytest.mark.skipif(not CLANG_FORMAT.exists(), reason="needs the clang-format of scripts/setup.sh")
def test_examples_in_comments_stay():
    assert any(len(line) > 100 for line in EXAMPLE.splitlines())
    done = subprocess.run([CLANG_FORMAT, f"--style=file:{ROOT / '.clang-format'}"], input=EXAMPLE,
                          capture_output=True, text=True, check=True)
    assert done.stdout == EXAMPLE
