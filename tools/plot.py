"""Line plots as SVG: small panels side by side with one scale. The same data give the same bytes."""

import math
from dataclasses import dataclass, field

from picture import COLOURS, GREY, WIDTH, escaped, number, step_of

LEFT, RIGHT, TOP, GAP = 48, 12, 44, 20  # around the panels, and between them
HEIGHT, TITLE, MARKS = 150, 20, 18  # of a panel, of its title, and of the marks below it
DASHED = "4 3"


@dataclass
class Panel:
    """`lines` are the values of each series, with None where there is none."""

    title: str
    marks: list[str]  # of the horizontal axis, at equal distances
    lines: dict[str, list[float | None]] = field(default_factory=dict)


def svg(title, unit, panels, columns, dashed=()):
    """`columns` panels per row. Series named in `dashed` are limits: grey lines without dots."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    solid = [name for name in names if name not in dashed]
    top = max((value for panel in panels for line in panel.lines.values() for value in line if value),
              default=1)
    step = step_of(2 * top)
    most = step * math.ceil(top / step)
    width = (WIDTH - LEFT - RIGHT - (columns - 1) * GAP) / columns
    rows = -(-len(panels) // columns)
    height = TOP + rows * (TITLE + HEIGHT + MARKS + GAP)
    parts, at = [], LEFT
    for name in names:
        kind = "limit" if name in dashed else f"s{solid.index(name)}"
        parts.append(f'<path d="M{at} 14h22" class="{kind}"/>'
                     f'<text x="{at + 28}" y="18">{escaped(name)}</text>')
        at += 52 + 7 * len(name)
    parts.append(f'<text x="4" y="{TOP - 2}">{escaped(unit)}</text>')
    for place, panel in enumerate(panels):
        left = LEFT + place % columns * (width + GAP)
        base = TOP + place // columns * (TITLE + HEIGHT + MARKS + GAP) + TITLE + HEIGHT
        parts += _panel(panel, left, base, width, most, step, place % columns == 0, solid)
    style = [f"text{{font:11px sans-serif;fill:{GREY}}}.m{{text-anchor:middle}}.e{{text-anchor:end}}"
             f".b{{font-weight:bold}}path{{fill:none;stroke-width:1.8}}"
             f".g{{stroke:{GREY};stroke-opacity:.25;stroke-width:1}}"
             f".limit{{stroke:{GREY};stroke-dasharray:{DASHED};stroke-width:1.2}}"]
    style += [f".s{i}{{stroke:{COLOURS[i % len(COLOURS)]}}}circle.s{i}{{fill:{COLOURS[i % len(COLOURS)]}}}"
              for i in range(len(solid))]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img"><title>{escaped(title)}</title>',
        f"<style>{''.join(style)}</style>", *parts, "</svg>", ""])


def _panel(panel, left, base, width, most, step, first, solid):
    count = len(panel.marks)

    def x(i):
        return number(left + width * (i + 0.5) / count)

    def y(value):
        return number(base - HEIGHT * value / most)

    heights = range(0, most + 1, step)
    grid = "".join(f"M{number(left)} {y(value)}h{number(width)}" for value in heights)
    parts = [f'<text x="{number(left + width / 2)}" y="{base - HEIGHT - 7}" class="m b">'
             f"{escaped(panel.title)}</text>", f'<path d="{grid}" class="g"/>']
    if first:
        parts += [f'<text x="{number(left - 6)}" y="{number(base - HEIGHT * value / most + 4)}" '
                  f'class="e">{value}</text>' for value in heights]
    parts += [f'<text x="{x(i)}" y="{base + 14}" class="m">{escaped(mark)}</text>'
              for i, mark in enumerate(panel.marks)]
    for name, line in panel.lines.items():
        kind = f"s{solid.index(name)}" if name in solid else "limit"
        parts.append(f'<path d="{_path(line, x, y)}" class="{kind}"/>')
        if name in solid:
            parts += [f'<circle cx="{x(i)}" cy="{y(value)}" r="2.4" class="{kind}"/>'
                      for i, value in enumerate(line) if value]
    return parts


def _path(line, x, y):
    """Broken where a value is missing."""
    drawn, pen = [], "M"
    for i, value in enumerate(line):
        if value:
            drawn.append(f"{pen}{x(i)} {y(value)}")
        pen = "L" if value else "M"
    return "".join(drawn)
