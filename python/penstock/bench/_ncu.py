"""Hardware counters of a kernel from ncu, compared with the measured copy rate."""

import math
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import _plot
from ._counters import DRAM, METRICS, READ, SHARES, TIME, WRITTEN, Profile, parse
from ._errors import BenchError
from ._table import aligned, shown_us

NO_PERMISSION = "ERR_NVGPUCTRPERM"


def program() -> str:
    found = shutil.which("ncu")
    if found is None:
        raise BenchError("ncu is not on PATH: it is part of the CUDA toolkit (/usr/local/cuda/bin), or can "
                         "be installed alone from NVIDIA's repository: apt-get install nsight-compute")
    return found


def profile(ncu: str, report: Path, command: Sequence[str]) -> Profile:
    """Runs `command` under ncu and keeps the report, which Nsight Compute can open."""
    # Clocks are not locked, as in a timed run; only what the command marks is profiled.
    _run([ncu, "--clock-control", "none", "--target-processes", "all", "--profile-from-start",
          "off", "--metrics", ",".join(METRICS), "--force-overwrite", "--export", str(report),
          *command])
    return read(ncu, report)


def read(ncu: str, report: Path) -> Profile:
    if not report.is_file():
        raise BenchError(f"{report}: expected a report of ncu, got no such file")
    table = _run([ncu, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"])
    return parse(table, str(report))


def _run(command: Sequence[str]) -> str:
    # In other locales ncu writes 1.234,5.
    done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                          env=os.environ | {"LC_ALL": "C.UTF-8"})
    printed = f"{done.stdout}\n{done.stderr}"
    if NO_PERMISSION in printed:
        raise BenchError(f"ncu may not read the GPU's counters ({NO_PERMISSION}): run as root, or allow "
                         "all users: put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into "
                         "/etc/modprobe.d/nvidia.conf and reload the driver")
    if done.returncode != 0:
        why = " ".join([line for line in printed.splitlines() if line.strip()][-3:])
        raise BenchError(f"ncu ended with status {done.returncode}: {why[-400:] or 'no message'}")
    return done.stdout


def table(profiles: Mapping[str, Profile], ceiling: float) -> str:
    """One column per profile, then the ratios of neighbours. `ceiling` is in bytes per second."""
    rows: dict[str, list[str]] = {"": list(profiles)}
    ratios = [f"{second}/{first}" for first, second in zip(profiles, list(profiles)[1:])]

    def add(label: str, values: list[float], shown: list[str]) -> None:
        of = [f"{second / first:.3f}" if first else "-" for first, second in zip(values, values[1:])]
        rows[label] = shown + of

    rows[""] += ratios
    all_of = list(profiles.values())
    add("launches", [len(p.launches) for p in all_of], [str(len(p.launches)) for p in all_of])
    times = [p.total(TIME) for p in all_of]
    add("total time", times, [shown_us(value * 1e6) for value in times])
    for label, metric in (("DRAM read", READ), ("DRAM written", WRITTEN)):
        values = [p.total(metric) for p in all_of]
        add(label, values, [f"{value * 1e-6:.2f} MB" for value in values])
    rates = [p.dram_bytes_per_second for p in all_of]
    add("DRAM rate", rates, [f"{value * 1e-9:.1f} GB/s" for value in rates])
    add(f"share of {ceiling * 1e-9:.1f} GB/s measured", rates,
        [f"{100 * value / ceiling:.1f} %" for value in rates])
    for metric, label in SHARES.items():
        values = [p.share(metric) for p in all_of]
        add(label, values, [_percent(value) for value in values])
    return aligned([label, *cells] for label, cells in rows.items())


def overview(cases: Mapping[str, Mapping[str, Profile]], calls: int, ceiling: float) -> str:
    """One row per case and kernel: the time per call and its memory rate."""
    rows = [["case", "kernel", "time", "DRAM rate", "% of measured", SHARES[DRAM]]]
    for case, profiles in cases.items():
        for name, p in profiles.items():
            rate = p.dram_bytes_per_second
            rows.append([case, name, shown_us(p.total(TIME) / calls * 1e6),
                         f"{rate * 1e-9:.1f} GB/s", f"{100 * rate / ceiling:.1f} %",
                         _percent(p.share(DRAM))])
    return aligned(rows)


def as_json(p: Profile, ceiling: float) -> dict[str, object]:
    """The counters for a results file."""
    totals = {metric: p.total(metric) for metric in (TIME, READ, WRITTEN)}
    shares = {metric: p.share(metric) for metric in SHARES}
    known = {name: value for name, value in (totals | shares).items() if not math.isnan(value)}
    return {"launches": len(p.launches), "kernels": sorted({e.kernel for e in p.launches}),
            "dram_GBps": p.dram_bytes_per_second * 1e-9,
            "of_ceiling": p.dram_bytes_per_second / ceiling, **known}


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.1f} %"


def plot(profiles: Mapping[str, Profile], path: Path, title: str) -> None:
    _plot.bars(path, title, "%", list(SHARES.values()),
               {name: [p.share(metric) for metric in SHARES] for name, p in profiles.items()})
