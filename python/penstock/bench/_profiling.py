"""Runs the kernels of a case under ncu, each in its own process."""

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import _ncu
from ._counters import Profile
from ._operator import Case, Context, Operator
from ._progress import Progress
from ._rerun import rerun_command

CALLS = 3  # profiled per kernel, unless --iterations is given


@dataclass(frozen=True)
class Profiler:
    ncu: str  # the program
    operator: Operator
    context: Context
    calls: int = CALLS

    def profile(self, case: Case, kernel: str, report: Path) -> Profile:
        command = [sys.executable,
                   *rerun_command(self.operator, self.context, "single_run", case.name, kernel),
                   "--iterations", str(self.calls), "--warm-up", "1"]
        with Progress() as progress:
            progress.show(f"ncu: {case.name}: {kernel}")
            return _ncu.profile(self.ncu, report, command)

    def counters(self, case: Case, kernel: str, ceiling: float) -> dict[str, object]:
        """The counters for a results file; the report is deleted."""
        with tempfile.TemporaryDirectory() as folder:
            profile = self.profile(case, kernel, Path(folder) / "it.ncu-rep")
        return _ncu.as_json(profile, ceiling)

    def report_names(self, case: Case, kernels: Sequence[str]) -> dict[str, Path]:
        return {kernel: Path(re.sub(r"[^\w.]+", "-", f"{self.operator.name}_{case.name}_{kernel}")
                             + ".ncu-rep") for kernel in kernels}
