#!/usr/bin/env python3
"""Writes include/penstock/kit/wgmma_shapes.inc: the operands of wgmma for every N.

Inline assembly wants each register spelled out, and N = 256 has 128 of them.
"""

from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "include/penstock/kit/wgmma_shapes.inc"
WIDTH = 98

HEADER = """\
// Written by tools/wgmma.py: wgmma's accumulators for every N, spelled out as inline assembly wants
// them. A part of wgmma.cuh.
"""


def wrap(items, indent, tail):
    """Lines of items, comma-separated, that end as macro lines do."""
    lines, line = [], indent
    for i, item in enumerate(items):
        word = item + (", " if i + 1 < len(items) else "")
        if len(line) + len(word) > WIDTH:
            lines.append(line.rstrip())
            line = indent
        line += word
    return lines + [line.rstrip() + tail]


def shape(n):
    count = n // 2
    names = [f"%{i}" for i in range(count)]
    lines = []
    text = ", ".join(names)
    lines.append(f'#define PENSTOCK_WGMMA_NAMES_{n} "{{{text}}}"')
    lines.append(f"#define PENSTOCK_WGMMA_REGISTERS_{n} \\")
    lines += " \\\n".join(wrap([f'"+f"(d[{i}])' for i in range(count)], "  ", "")).split("\n")
    more = ", ".join(f'"%{count + i}"' for i in range(8))
    operands = ", ".join(f'"%{count + i}"' for i in range(7))
    lines.append(f"PENSTOCK_WGMMA_SHAPE({n}, {operands})")
    lines.append(f"#undef PENSTOCK_WGMMA_NAMES_{n}")
    lines.append(f"#undef PENSTOCK_WGMMA_REGISTERS_{n}")
    return "\n".join(lines) + "\n"


def text():
    return HEADER + "".join("\n" + shape(n) for n in range(8, 257, 8))


if __name__ == "__main__":
    TARGET.write_text(text())
