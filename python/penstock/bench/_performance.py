"""One case, checked and then timed, as the results file holds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ._clock import Clock
from ._correctness import Verdict, check
from ._operator import Call, Case, Peer, Yardstick
from ._rotation import Rotation
from ._timing import Plan, Samples, measure


@dataclass
class Measured:
    """A case's entry, or why there is none."""

    case: str
    entry: dict[str, Any] | None = None
    complaints: list[str] = field(default_factory=list)  # of ours: the case is not written
    notes: list[str] = field(default_factory=list)  # what to know about its figures


def present(case: Case) -> dict[str, Call]:
    return {name: peer.call for name, peer in case.peers().items() if isinstance(peer, Peer)}


def answering(case: Case) -> dict[str, Call]:
    """Those whose result can be checked."""
    return {name: peer.call for name, peer in case.peers().items()
            if isinstance(peer, Peer) and not isinstance(peer, Yardstick)}


def versions(cases: list[Case]) -> dict[str, str]:
    """Every peer of these cases, as the head of a results file names it."""
    told: dict[str, str] = {}
    for case in cases:
        for name, peer in case.peers().items():
            if isinstance(peer, Peer):
                told[name] = peer.version
            else:
                told.setdefault(name, f"absent ({peer.reason})")
    return told


def run_case(case: Case, kernels: Mapping[str, Call], clock: Clock, plan: Plan, cache: int,
             ceilings: Mapping[str, float]) -> Measured:
    """`kernels` are ours, the first of them the one that is judged."""
    measured = Measured(case.name)
    peers = present(case)
    verdicts = check(case, {**kernels, **answering(case)}, clock)
    measured.complaints = [f"{name}: {verdicts[name].complaint}" for name in kernels
                           if not verdicts[name].right]
    if measured.complaints:
        return measured
    wrong = {name: verdict.complaint for name, verdict in verdicts.items() if not verdict.right}
    measured.notes += [f"{name} is left out: {why}" for name, why in wrong.items()]

    rotation = Rotation(case, cache)
    if not rotation.exceeds_the_cache:
        measured.notes.append(f"its {len(rotation)} sets of buffers, {rotation.bytes} bytes, stay "
                              f"in the cache of {cache} bytes")
    calls = dict(kernels) | {name: call for name, call in peers.items() if name not in wrong}
    for call in calls.values():
        rotation.prepare(call)
    samples = measure({name: partial(rotation.call, call) for name, call in calls.items()}, clock,
                      plan,
                      known={name: partial(rotation.first, call) for name, call in calls.items()})
    measured.entry = _entry(case, list(kernels), samples, verdicts, rotation, ceilings)
    if wrong:
        measured.entry["metrics"]["left_out"] = wrong
    return measured


def _entry(case: Case, kernels: list[str], samples: Mapping[str, Samples],
           verdicts: Mapping[str, Verdict], rotation: Rotation,
           ceilings: Mapping[str, float]) -> dict[str, Any]:
    judged, *variants = kernels
    ours, floor_us = samples[judged], case.floor_us(ceilings)
    peers = [name for name in samples if name not in kernels]
    seconds = ours.judged_us * 1e-6
    metrics: dict[str, Any] = {
        "kernel": judged,
        "bytes": case.bytes,
        "flop": case.flop,
        "GBps": round(case.bytes / seconds * 1e-9, 3),
        "GFLOPs": round(case.flop / seconds * 1e-9, 3),
        "of_floor": round(floor_us / ours.judged_us, 4),
        "sustained_us": ours.sustained_us,
        "rotation": {"sets": len(rotation), "bytes": rotation.bytes,
                     "exceeds_cache": rotation.exceeds_the_cache},
    }
    if ours.enqueue_us is not None:
        metrics["enqueue_us"] = ours.enqueue_us
    if peers:
        metrics["peer_sustained_us"] = {name: samples[name].sustained_us for name in peers}
    if variants:
        metrics["kernels"] = {name: samples[name].summary() |
                              {"sustained_us": samples[name].sustained_us} for name in variants}
    return {
        "case": case.name,
        "params": dict(case.params),
        "correct": True,
        "max_error": verdicts[judged].max_error,
        "tolerance": case.tolerance,
        "floor_us": round(floor_us, 3),
        "ours": ours.summary(),
        "peer": {name: samples[name].summary() for name in peers},
        "metrics": metrics,
    }
