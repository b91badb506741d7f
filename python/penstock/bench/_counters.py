"""Hardware counters, read from ncu's CSV output."""

import csv
import math
from dataclasses import dataclass

from ._errors import BenchError

TIME = "gpu__time_duration.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SHARES = {  # of several launches, the mean weighted by time
    DRAM: "DRAM, % of peak",
    "l1tex__throughput.avg.pct_of_peak_sustained_elapsed": "L1, % of peak",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "SMs, % of peak",
    "lts__t_sector_hit_rate.pct": "L2 hit rate",
}
METRICS = (TIME, READ, WRITTEN, *SHARES)

_UNITS = {"": 1.0, "%": 1.0, "byte": 1.0, "second": 1.0, "sec": 1.0, "s": 1.0}
_UNITS |= {f"{prefix}byte": scale for prefix, scale in
           (("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))}
_UNITS |= {f"{prefix}{unit}": scale for unit in ("second", "sec", "s")
           for prefix, scale in (("n", 1e-9), ("u", 1e-6), ("m", 1e-3))}


@dataclass(frozen=True)
class Launch:
    kernel: str
    values: dict[str, float]  # in seconds, bytes and percent; NaN if ncu gave no value


@dataclass(frozen=True)
class Profile:
    """All kernel launches that were profiled."""

    launches: list[Launch]

    def total(self, metric: str) -> float:
        return math.fsum(launch.values[metric] for launch in self.launches)

    def share(self, metric: str) -> float:
        return math.fsum(launch.values[metric] * launch.values[TIME]
                         for launch in self.launches) / self.total(TIME)

    @property
    def dram_bytes_per_second(self) -> float:
        return (self.total(READ) + self.total(WRITTEN)) / self.total(TIME)


def parse(text: str, source: str) -> Profile:
    """Parses `ncu --csv --page raw`: one row of names, one of units, then one row per launch.

    `source` names the report in error messages.
    """
    lines = text.splitlines()
    # ncu prints messages before the table, in lines that begin with ==.
    begin = next((i for i, line in enumerate(lines) if line.startswith(('"ID"', "ID,"))), None)
    if begin is None:
        raise BenchError(f"{source}: expected ncu's table, which begins with ID, got "
                      f"{lines[0][:80]!r}" if lines else f"{source}: ncu printed nothing")
    rows = [row for row in csv.reader(lines[begin:]) if row and not row[0].startswith("==")]
    names, *others = rows
    missing = [name for name in ("Kernel Name", *METRICS) if name not in names]
    if missing:
        raise BenchError(f"{source}: expected the metrics of `penstock bench --mode ncu`, missing: "
                         f"{', '.join(missing)}")
    for row in others:
        if len(row) != len(names):
            raise BenchError(f"{source}: expected {len(names)} columns, got {len(row)} in "
                             f"{','.join(row)[:80]!r}: is the file complete?")
    if len(others) < 2:
        raise BenchError(f"{source}: no kernel was profiled")
    units = dict(zip(names, others[0]))
    return Profile([_launch(dict(zip(names, row)), units, source) for row in others[1:]])


def _launch(row: dict[str, str], units: dict[str, str], source: str) -> Launch:
    values = {metric: _number(row[metric], source, metric) * _scale(units[metric], source, metric)
              for metric in METRICS}
    if not values[TIME] > 0:
        raise BenchError(f"{source}: {TIME}: expected a positive time, got {row[TIME]!r}")
    return Launch(row["Kernel Name"], values)


def _scale(unit: str, source: str, metric: str) -> float:
    if unit not in _UNITS:
        raise BenchError(f"{source}: {metric}: expected a unit of time, bytes or %, got {unit!r}")
    return _UNITS[unit]


def _number(text: str, source: str, metric: str) -> float:
    if text.strip() in ("", "n/a", "(!) n/a", "nan"):
        return math.nan
    try:
        return float(text.replace(",", ""))  # 1,234.5
    except ValueError:
        raise BenchError(f"{source}: {metric}: expected a number, got {text!r}") from None
