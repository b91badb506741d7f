"""A peer that is the fastest of several ways to do the same, as its user would have chosen it."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from ._errors import BenchError
from ._operator import Absent, Call, Peer

TURNS = 5


class Fastest:
    """Finds and tries all ways at the first call, and stays with the fastest.

    Ways that raise a BenchError, or whose result differs from that of the first, are left out.
    """

    def __init__(self, find_ways: Callable[[], Mapping[str, Call]], tolerance: float,
                 cache: int) -> None:
        self._find_ways, self._tolerance, self._cache = find_ways, tolerance, cache
        self._call: Call | None = None
        self.chosen = ""

    def __call__(self, inputs: Any, outputs: Any) -> None:
        if self._call is None:
            right = self._right(inputs, outputs)
            times = times_us(right, inputs, outputs, self._cache)
            self.chosen = min(times, key=lambda name: times[name])
            self._call = right[self.chosen]
        self._call(inputs, outputs)

    def _right(self, inputs: Any, outputs: Any) -> dict[str, Call]:
        """The ways whose result is that of the first, which must succeed."""
        first, right = None, {}
        for name, way in self._find_ways().items():
            outputs.fill_(float("nan"))
            try:
                way(inputs, outputs)
            except BenchError:
                if first is None:
                    raise
                continue
            if first is None:
                first = outputs.clone()
            if self._agree(outputs, first):
                right[name] = way
        return right

    def _agree(self, got: Any, wanted: Any) -> bool:
        size = wanted.abs().clamp_(min=1)
        return bool(((got - wanted).abs() <= self._tolerance * size).all())  # false for NaN


def chosen(peers: Mapping[str, Peer | Absent]) -> dict[str, Any]:
    """Which way each of these peers has chosen, for the results file."""
    calls = {name: peer.call for name, peer in peers.items() if isinstance(peer, Peer)}
    ways = {name: call.chosen for name, call in calls.items() if isinstance(call, Fastest)}
    return {"chosen": ways} if ways else {}


def times_us(calls: Mapping[str, Call], inputs: Any, outputs: Any, cache: int) -> dict[str, float]:
    """The median GPU time of each call, in interleaved runs that start with a cold cache."""
    import torch

    scratch = torch.empty(3 * cache, dtype=torch.uint8, device=outputs.device)
    events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            scratch.zero_()  # also keeps the GPU busy until the call is enqueued
            begin.record()
            call(inputs, outputs)
            end.record()
            events[name].append((begin, end))
    torch.cuda.synchronize()
    return {name: statistics.median(begin.elapsed_time(end) * 1e3 for begin, end in pairs)
            for name, pairs in events.items()}
