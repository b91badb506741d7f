#!/usr/bin/env python3
"""Checks that no module includes a header of a module that is not to its left: arrows.py [ROOT]."""

import re
import sys
from pathlib import Path

# What each module may include, besides itself and the version header.
MAY_INCLUDE = {
    "base": set(),
    "kit": {"base"},
    "host": {"base"},
    "trace": {"base", "host"},
    "ops": {"base", "kit", "host"},
    "weights": {"base", "host"},
    "outofcore": {"base", "kit", "host", "ops", "weights"},
    "measure": {"base", "kit", "host", "trace", "ops", "weights", "outofcore"},
    # Deprecated headers that forward to outofcore.
    "stream": {"base", "kit", "host", "ops", "weights", "outofcore"},
}
FREE_HEADERS = {"version.h"}
SUFFIXES = {".h", ".cuh", ".cpp", ".cu", ".inl"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)


def module_of(root, path):
    """The module of a file, the file's own name for one beside the modules, None for one elsewhere."""
    for tree in (root / "include" / "penstock", root / "src"):
        if path.is_relative_to(tree):
            return path.relative_to(tree).parts[0]
    return None


def included_file(root, includer, quoted, name):
    """The file of this tree that an include line names, None for one of another library."""
    folders = [root / "include", root / "src"]
    if quoted:
        folders.insert(0, includer.parent)
    for folder in folders:
        path = (folder / name).resolve()
        if path.is_file():
            return path
    if name.startswith("penstock/"):
        return (root / "include" / name).resolve()
    return None


def unknown_modules(root):
    for tree in (root / "include" / "penstock", root / "src"):
        for folder in sorted(p for p in tree.glob("*") if p.is_dir()):
            if folder.name not in MAY_INCLUDE:
                where = folder.relative_to(root).as_posix()
                yield f"{where}: no arrow says what this module may include"


def violations(root):
    root = root.resolve()
    yield from unknown_modules(root)
    for module, allowed in MAY_INCLUDE.items():
        for tree in (root / "include" / "penstock" / module, root / "src" / module):
            for path in sorted(p for p in tree.rglob("*") if p.suffix in SUFFIXES):
                text = path.read_text(errors="replace")
                for match in INCLUDE.finditer(text):
                    found = included_file(root, path, match[1] == '"', match[2])
                    other = module_of(root, found) if found else None
                    if other is None or other == module or other in allowed | FREE_HEADERS:
                        continue
                    line = text.count("\n", 0, match.start(2)) + 1
                    where = path.relative_to(root).as_posix()
                    yield f"{where}:{line}: {module} may not include {match[2]}"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(violations(root))
    print("\n".join(found) if found else "arrows: every include points left")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
