"""Inspects the machine, measures its bandwidths, and compares an overlapped run with its floor."""

import json
import os
from collections.abc import Callable
from typing import Any

from . import _core, _html
from ._check import not_negative

Progress = Callable[[str, float], object]


class Doctor:
    """The result of :func:`doctor`: `machine` describes this machine, `findings` lists problems."""

    def __init__(self, machine: dict[str, Any], findings: list[dict[str, str]]) -> None:
        self.data: dict[str, Any] = {"machine": machine, "findings": findings}

    @property
    def machine(self) -> dict[str, Any]:
        return self.data["machine"]  # type: ignore[no-any-return]

    @property
    def findings(self) -> list[dict[str, str]]:
        return self.data["findings"]  # type: ignore[no-any-return]

    def _rows(self) -> list[tuple[str, str]]:
        host, cuda = self.machine["host"], self.machine["cuda"]
        rows = [
            ("penstock", self.machine["version"]),
            ("system", f"{host['os']}, Linux {host['kernel']}"),
            ("CPU", f"{host['cpu']}, {host['cores']} cores"),
            ("memory", f"{host['memory_bytes'] / 2**30:.1f} GiB"),
            ("CUDA", f"built with {cuda['toolkit']}" if cuda["built_in"] else "not built in"),
        ]
        rows += [(f"cuda:{gpu['index']}", f"{gpu['name']}, {gpu['memory_bytes'] / 2**30:.0f} GiB")
                 for gpu in self.machine["gpus"]]
        if not self.machine["gpus"]:
            rows.append(("GPU", f"none: {cuda['why_no_gpu']}"))
        return rows

    def __str__(self) -> str:
        lines = [f"{label:<10}{text}" for label, text in self._rows()]
        for finding in self.findings:
            lines.append(f"{finding['severity']}: {finding['what']}")
            lines.append(f"  why: {finding['why']}")
            lines.append(f"  fix: {finding['fix']}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [_html.table(self._rows())]
        if self.findings:
            parts.append(_html.table(
                ([f["severity"], f["what"], f["why"], f["fix"]] for f in self.findings),
                head=["", "what", "why", "fix"]))
        return "".join(parts)


def doctor() -> Doctor:
    """Inspects this machine and lists what is missing or misconfigured. It measures nothing.

    Every finding says what is wrong, why it matters, and how to fix it.

    >>> import penstock
    >>> found = penstock.doctor()
    >>> found.machine["version"] == penstock.__version__
    True
    >>> all(finding["fix"] for finding in found.findings)
    True
    """
    machine, findings = _core.inspect()
    return Doctor(json.loads(machine), findings)


class Limits:
    """Measured bandwidths: ``limits["host_copy"]`` is one, in bytes per second; `data` has all."""

    def __init__(self, data: dict[str, Any], cached: bool, warnings: list[str]) -> None:
        self.data = data
        self.cached = cached
        self.warnings = warnings

    def __getitem__(self, ceiling: str) -> float:
        return float(self.data["rates"][ceiling]["bytes_per_second"])

    def __contains__(self, ceiling: object) -> bool:
        return ceiling in self.data["rates"]

    def _rows(self) -> list[tuple[str, str]]:
        return [(name, f"{rate['bytes_per_second'] / 1e9:.2f} GB/s")
                for name, rate in self.data["rates"].items()]

    def __str__(self) -> str:
        when = f"{'cached on' if self.cached else 'measured on'} {self.data['date']}"
        lines = [f"  {name:<14}{rate:>12}" for name, rate in self._rows()]
        return "\n".join([f"Bandwidths of {self.data['device']}, {when}", *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html.table(self._rows(), head=["ceiling", "measured"])


def limits(device: str | _core.Device | None = None, *, quick: bool = False, fresh: bool = False,
           disk: bool = True, directory: str | os.PathLike[str] = ".",
           progress: Progress | None = None) -> Limits:
    """Measures the bandwidth of the link to the GPU, of device and host memory, and of the disk.

    Results are cached, in the same cache that `penstock doctor` uses; `fresh` measures again.
    `quick` takes a quarter of the time, is accurate to about 10 %, and is not cached. `directory`
    selects the disk. `progress` is called with what is being measured and the fraction done. Ctrl-C
    stops it.

    >>> import penstock
    >>> ceilings = penstock.limits("cpu", quick=True, fresh=True, disk=False)
    >>> ceilings["host_copy"] > 1e8
    True
    """
    data, cached, warnings = _core.limits(device, quick, fresh, disk, os.fspath(directory), progress)
    return Limits(json.loads(data), cached, warnings)


class Overlap:
    """The result of :func:`overlap`: times, and the timelines of the sequential and pipelined runs."""

    def __init__(self, data: dict[str, Any], sequential: _core.Timeline,
                 pipelined: _core.Timeline) -> None:
        self.data = data
        self.sequential = sequential
        self.pipelined = pipelined

    @property
    def hidden(self) -> float | None:
        """How much of the possible gain was achieved: (sequential - pipelined) / (sequential - floor).

        None if there was nothing to gain.
        """
        return self.data["hidden"]  # type: ignore[no-any-return]

    @property
    def efficiency(self) -> float:
        """The floor divided by the time of the pipelined run."""
        return float(self.data["efficiency"])

    @property
    def speedup(self) -> float:
        """The time of the sequential run divided by that of the pipelined run."""
        return float(self.data["speedup"])

    @property
    def seconds(self) -> float:
        """The time of the pipelined run."""
        return float(self.data["pipelined_us"]) * 1e-6

    @property
    def floor_seconds(self) -> float:
        """The lowest possible time: of the slowest engine alone, or of copies in both directions."""
        return float(self.data["floor_us"]) * 1e-6

    @property
    def valid(self) -> bool:
        """False if the run came out faster than its floor: the measurement is unreliable."""
        return bool(self.data["valid"])

    @property
    def note(self) -> str:
        """A remark on the result, such as why it is not valid; usually empty."""
        return str(self.data["note"])

    def _rows(self) -> list[tuple[str, str]]:
        d = self.data
        hidden = "-" if self.hidden is None else f"{self.hidden:.1%}"
        return [
            ("device", str(d["device"]["model"])),
            ("chunks", f"{d['chunks']} of {d['chunk_bytes'] / 2**20:.2f} MiB"),
            ("sequential", f"{d['sequential']['total_us'] / 1e3:.2f} ms"),
            ("pipelined", f"{self.seconds * 1e3:.2f} ms"),
            ("floor", f"{self.floor_seconds * 1e3:.2f} ms"),
            ("hidden", hidden),
            ("efficiency", f"{self.efficiency:.1%}"),
        ] + ([("note", self.note)] if self.note else [])

    def __str__(self) -> str:
        return "\n".join(f"{label:<12}{text}" for label, text in self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        page = _core.page([("sequential", self.sequential), ("pipelined", self.pipelined)],
                          "Sequential and pipelined")
        return _html.table(self._rows()) + _html.in_frame(page)


def overlap(device: str | _core.Device | None = None, *, ways: int = 3, items: int = 8,
            item_bytes: int | None = None, chunk: int = 0, depth: int = 4,
            compute_ratio: float = 1.0, rounds: int = 0, repeats: int = 7,
            progress: Progress | None = None) -> Overlap:
    """Measures copies and compute run sequentially and overlapped, and compares them with the floor.

    `ways` is 2 (upload and compute), 3 (and download) or 4 (and device copy). `items` items of
    `item_bytes` each are moved, by default of 256 MiB on a GPU and 16 MiB on the CPU, in chunks of
    `chunk` bytes; 0 chooses the chunk from measured costs. `depth` is the number of slots.
    `compute_ratio` sets the compute time relative to the copy time, or `rounds` sets the work per
    element. `progress` is called with the current step and the fraction done. Ctrl-C stops it.

    >>> import penstock
    >>> found = penstock.overlap("cpu", items=2, item_bytes=1 << 20, repeats=1)
    >>> found.seconds > 0 and found.floor_seconds > 0
    True
    >>> sorted({entry.engine for entry in found.pipelined.entries()})
    ['compute', 'download', 'upload']
    """
    place = _core.Device(device)
    size = (256 if place.kind == "cuda" else 16) * 2**20 if item_bytes is None else item_bytes
    data, sequential, pipelined = _core.overlap(
        place, ways, not_negative("items", items), not_negative("item_bytes", size),
        not_negative("chunk", chunk), not_negative("depth", depth), compute_ratio, rounds, repeats,
        progress)
    return Overlap(json.loads(data), sequential, pipelined)
