#!/usr/bin/env python3
"""Checks that tracked text names no path of a developer's machine and leaves no note to self, and that what
users read uses the usual terms."""

import re
import subprocess
import sys
from pathlib import Path

NO_REPOSITORY = 77

# Written in pieces so that this file passes its own check.
REFUSED = {
    "a path of one machine": re.compile(r"(?<![\w.])/" + r"work/"),
    "a note to self": re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b"),
}

# Terms that readers do not know, with the usual ones: in Markdown pages, public headers and the Python package, and
# in the strings that the program and its ladders print.
UNUSUAL = {
    re.compile(r"\bby turns\b"): "interleaved",
    re.compile(r"\b(under way|on (its|their) way)\b"): "in flight",
    re.compile(r"\bwanted times?\b"): "target time",
    re.compile(r"\bof the house\b"): "of Penstock",
    re.compile(r"\bof as many bytes\b"): "of the same size",
    re.compile(r"\b\d+ (loads?|bytes|rows|blocks?|tiles?) an? "
               r"(thread|lane|warp|block|tile|kernel|load|SM)\b"): "... per ...",
}
PRINTED = re.compile(r"(examples|cli)/.*\.(cu|cuh|cpp|h)")  # strings
READ = re.compile(r".*\.md|include/.*\.(h|cuh)|python/penstock/.*\.py")  # everything
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def unusual(name, number, line):
    for pattern, usual in UNUSUAL.items():
        if found := pattern.search(line):
            yield f"{name}:{number}: write '{usual}' instead of '{found[0]}'"


def violations(root, names):
    for name in names:
        path = root / name
        if not path.is_file() or b"\0" in (data := path.read_bytes()):
            continue
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            for what, pattern in REFUSED.items():
                if pattern.search(line):
                    yield f"{name}:{number}: {what}: {line.strip()[:80]}"
            if READ.fullmatch(name):
                yield from unusual(name, number, line)
            elif PRINTED.fullmatch(name):
                yield from unusual(name, number, " ".join(STRING.findall(line)))


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode != 0:
        print("words: not a git repository, nothing to check")
        return NO_REPOSITORY
    found = list(violations(root, filter(None, listed.stdout.split("\0"))))
    print("\n".join(found) if found else "words: nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
