"""Checks and times one case, and makes its entry in the results file."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ._clock import Clock
from ._correctness import Verdict, check
from ._floor import Floor, reason_to_drop
from ._operator import Call, Case, Peer, Yardstick
from ._rotation import Rotation
from ._timing import Plan, Samples, measure


@dataclass
class Measured:
    """A case's entry in the results, or why there is none."""

    case: str
    entry: dict[str, Any] | None = None
    dropped: dict[str, Any] | None = None  # instead of the entry, if it beat its floor
    complaints: list[str] = field(default_factory=list)  # wrong results of ours: nothing is written
    notes: list[str] = field(default_factory=list)  # what to know about its figures


def present(case: Case) -> dict[str, Call]:
    return {name: peer.call for name, peer in case.peers().items() if isinstance(peer, Peer)}


def answering(case: Case) -> dict[str, Call]:
    """The peers whose result can be checked."""
    return {name: peer.call for name, peer in case.peers().items()
            if isinstance(peer, Peer) and not isinstance(peer, Yardstick)}


def versions(cases: list[Case]) -> dict[str, str]:
    """The version of every peer of these cases, for the head of a results file."""
    found: dict[str, str] = {}
    for case in cases:
        for name, peer in case.peers().items():
            if isinstance(peer, Peer):
                found[name] = peer.version
            else:
                found.setdefault(name, f"absent ({peer.reason})")
    return found


def run_case(case: Case, kernels: Mapping[str, Call], clock: Clock, plan: Plan, cache: int,
             ceilings: Mapping[str, float]) -> Measured:
    """`kernels` are ours. The first is compared with the peers, the roof and the floor."""
    measured = Measured(case.name)
    if case.most_enqueued is not None:
        plan = replace(plan, enqueued=min(plan.enqueued, case.most_enqueued))
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
        measured.notes.append(f"the {len(rotation)} sets of buffers ({rotation.bytes} bytes) fit into "
                              f"the cache of {cache} bytes")
    engines, parts = dict(case.engines()), dict(case.roof_parts())
    calls = dict(kernels) | {name: call for name, call in peers.items() if name not in wrong}
    others = {_engine(name): call for name, call in engines.items()}
    others |= {_part(name): call for name, call in parts.items()}
    for call in [*calls.values(), *others.values()]:
        rotation.prepare(call)
    timed = {name: partial(rotation.call, call) for name, call in {**calls, **others}.items()}
    samples = measure(timed, clock, plan,
                      known={name: partial(rotation.first, call) for name, call in calls.items()})
    floors = {name: _floor_of(samples.pop(_engine(name))) for name in engines}
    parts_us = {name: samples.pop(_part(name)).judged_us for name in parts}
    entry = _entry(case, list(kernels), samples, verdicts, rotation,
                   case.roof_of_parts(ceilings, parts_us))
    if parts:
        entry["metrics"]["roof_parts_us"] = {name: round(us, 3) for name, us in parts_us.items()}
    if wrong:
        entry["metrics"]["left_out"] = wrong
    if floors:
        _judge(measured, entry, floors, samples[next(iter(kernels))].judged_us)
    else:
        measured.entry = entry
    return measured


def _engine(name: str) -> str:
    """The key of an engine among the timed calls: no kernel or peer is called so."""
    return f"engine alone: {name}"


def _part(name: str) -> str:
    """The key of a part of the roof among the timed calls."""
    return f"part of the roof: {name}"


def _floor_of(samples: Samples) -> Floor:
    floor = Floor()
    for us in samples.gpu_us or samples.call_us:
        floor.add(us)
    return floor


def _judge(measured: Measured, entry: dict[str, Any], floors: Mapping[str, Floor],
           ours_us: float) -> None:
    """Adds the floor to the entry, or drops the entry if it beat the floor."""
    floor_us = max(floor.us for floor in floors.values())
    reason = reason_to_drop(ours_us, floor_us)
    if reason:
        measured.dropped = {"case": measured.case, "reason": reason, "us": round(ours_us, 3),
                            "floor_us": round(floor_us, 3)}
        return
    entry["floor_us"] = round(floor_us, 3)
    entry["metrics"]["over_floor"] = round(ours_us / floor_us, 4)
    entry["metrics"]["engines_us"] = {name: round(floor.us, 3) for name, floor in floors.items()}
    measured.entry = entry


def _entry(case: Case, kernels: list[str], samples: Mapping[str, Samples],
           verdicts: Mapping[str, Verdict], rotation: Rotation, roof_us: float) -> dict[str, Any]:
    judged, *variants = kernels
    ours = samples[judged]
    peers = [name for name in samples if name not in kernels]
    seconds = ours.judged_us * 1e-6
    metrics: dict[str, Any] = {
        "kernel": judged,
        "bytes": case.bytes,
        "flop": case.flop,
        "GBps": round(case.bytes / seconds * 1e-9, 3),
        "GFLOPs": round(case.flop / seconds * 1e-9, 3),
        "of_roof": round(roof_us / ours.judged_us, 4),
        "sustained_us": ours.sustained_us,
        "rotation": {"sets": len(rotation), "bytes": rotation.bytes,
                     "exceeds_cache": rotation.exceeds_the_cache},
    }
    if ours.enqueue_us is not None:
        metrics["enqueue_us"] = ours.enqueue_us
    if peers:
        metrics["peer_sustained_us"] = {name: samples[name].sustained_us for name in peers}
    if variants:
        metrics["kernels"] = {name: _variant(samples[name]) for name in variants}
    metrics |= case.more_metrics()
    return {
        "case": case.name,
        "params": dict(case.params),
        "correct": True,
        "max_error": verdicts[judged].max_error,
        "tolerance": case.tolerance,
        "yardstick": case.yardstick,
        "yardstick_us": round(roof_us, 3),
        "ours": ours.summary(),
        "peer": {name: samples[name].summary() for name in peers},
        "metrics": metrics,
    }


def _variant(samples: Samples) -> dict[str, float | int]:
    """The times of a kernel of ours that is not the one compared with the peers."""
    times = samples.summary() | {"sustained_us": samples.sustained_us}
    return times if samples.enqueue_us is None else times | {"enqueue_us": samples.enqueue_us}
