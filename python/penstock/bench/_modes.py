"""The modes of `penstock bench`. Each returns the exit code: 0 only if every result was right."""

import argparse
import json
import math
import shlex
import sys
from dataclasses import replace
from typing import Any

from .._errors import InvalidArgument
from .._measure import Limits, limits
from . import _choice, _ncu, _plot, _results, _table, operators
from ._clock import clock_for
from ._correctness import check, tolerance_of
from ._counters import TIME, Profile
from ._errors import BenchError
from ._operator import Case, Context, Operator
from ._performance import run_case, versions
from ._profiling import CALLS, Profiler
from ._progress import Progress
from ._rerun import rerun_command
from ._rotation import cache_bytes
from ._timing import Plan

OK, FAILED = 0, 1


def _complain(text: str) -> None:
    print(text, file=sys.stderr)


def _check_files(args: argparse.Namespace) -> None:
    if args.output:
        _results.check_writable("--output", args.output)
    if args.plot:
        _plot.check_possible()
        _results.check_writable("--plot", args.plot)


def _ceilings(context: Context) -> Limits:
    with Progress() as progress:
        found = limits(context.device, quick=context.quick, disk=False,
                       progress=lambda what, share: progress.show(f"ceilings: {what}"))
    for warning in found.warnings:
        _complain(f"penstock: {warning}")
    return found


def list_operators(name: str | None, context: Context, as_json: bool) -> int:
    listed: dict[str, Any] = {}
    for known in [name] if name else operators.names():
        operator = operators.find(known)
        cases = operator.cases(context)
        listed[known] = {
            "summary": operator.summary,
            "cases": {case.name: dict(case.params) for case in cases},
            "kernels": list(dict.fromkeys(kernel for case in cases for kernel in case.kernels())),
            "peers": versions(cases),
        }
    if as_json:
        print(json.dumps(listed, indent=1))
        return OK
    for known, about in listed.items():
        print(f"{known}: {about['summary']}")
        for case, params in about["cases"].items():
            print(f"  case {case}: {', '.join(f'{key} {value}' for key, value in params.items())}")
        print(f"  kernels: {', '.join(about['kernels'])}")
        for peer, version in about["peers"].items():
            print(f"  peer {peer}: {version}")
    return OK


def correctness(operator: Operator, context: Context, args: argparse.Namespace) -> int:
    clock = clock_for(context.device)
    checks: list[dict[str, Any]] = []
    for case in _choice.cases(operator.cases(context), args.case):
        calls = _choice.checked(case, args.kernel)
        for kernel, verdict in check(case, calls, clock).items():
            error = verdict.max_error
            checks.append({"case": case.name, "kernel": kernel, "correct": verdict.right,
                         "max_error": None if math.isnan(error) else error,
                         "tolerance": tolerance_of(case, kernel), "complaint": verdict.complaint})
            if not verdict.right:
                words = rerun_command(operator, context, "correctness", case.name, kernel)
                _complain(f"{case.name}: {kernel}: {verdict.complaint}\n"
                          f"  to repeat: python {shlex.join(words)}")
    if args.json:
        print(json.dumps({"name": operator.name, "device": context.device.name,
                          "seed": context.seed, "checks": checks}, indent=1))
    else:
        print(f"{operator.name} on {context.device.name}, seed {context.seed}")
        print(_table.aligned(
            [["case", "kernel", "", "max error", "tolerance"],
             *([entry["case"], entry["kernel"], "right" if entry["correct"] else "WRONG",
                "-" if entry["max_error"] is None else f"{entry['max_error']:.3g}",
                f"{entry['tolerance']:.3g}"] for entry in checks)]))
    return OK if all(entry["correct"] for entry in checks) else FAILED


def performance(operator: Operator, context: Context, args: argparse.Namespace) -> int:
    _check_files(args)
    cases = _choice.cases(operator.cases(context), args.case)
    kernels = {case.name: _choice.kernels(case, args.kernel) for case in cases}
    counted = [] if args.counters is None else _choice.cases(cases, args.counters,
                                                                    "--counters")
    profiler = _profiler(operator, context) if counted else None
    clock = clock_for(context.device)
    ceilings = _ceilings(context)
    rates = {name: ceilings[name] for name in ceilings.data["rates"]}
    plan = Plan.quick() if context.quick else operator.plan
    if args.iterations:
        plan = replace(plan, samples=args.iterations)

    results = _results.document(operator.name, context.device, ceilings, context.seed,
                                versions(cases))
    failed = False
    for number, case in enumerate(cases, 1):
        with Progress() as progress:
            progress.show(f"{case.name}, {number} of {len(cases)}")
            measured = run_case(case, kernels[case.name], clock, plan, cache_bytes(context.device),
                                rates)
        for note in measured.notes:
            _complain(f"{case.name}: {note}")
        for complaint in measured.complaints:
            words = rerun_command(operator, context, "correctness", case.name)
            _complain(f"{case.name}: not measured: {complaint}\n"
                      f"  to repeat: python {shlex.join(words)}")
            failed = True
        if measured.dropped is not None:
            results.setdefault("dropped", []).append(measured.dropped)
        if measured.entry is not None:
            results["cases"].append(measured.entry)
            if profiler is not None and case in counted:
                measured.entry["metrics"]["counters"] = _counters(
                    profiler, case, next(iter(kernels[case.name])), rates["device_copy"])

    if args.json:
        print(json.dumps(results, indent=1))
    elif results["cases"] or results.get("dropped"):
        what = "GPU time" if context.device.kind == "cuda" else "call time"
        print(f"{operator.name} on {context.device.capabilities['name']}, {what}, "
              f"seed {context.seed}\n{_table.of_results(results)}")
    if results["cases"]:  # otherwise the last good file stays
        if args.output:
            _results.write(args.output, results)
            _complain(f"results written to {args.output}; to draw them: penstock report {args.output}")
        if args.plot:
            _plot.of_results(results, args.plot)
    return FAILED if failed else OK


def _counters(profiler: Profiler, case: Case, kernel: str, ceiling: float) -> dict[str, object]:
    try:
        return profiler.counters(case, kernel, ceiling)
    except BenchError as error:  # the times are valid without the counters
        _complain(f"{case.name}: {error}")
        return {"absent": str(error)}


def single_run(operator: Operator, context: Context, args: argparse.Namespace) -> int:
    case = _choice.one_case(operator.cases(context), args.case)
    calls = _choice.kernels_and_peers(case, args.kernel)
    name, call = next(iter(calls.items()))
    if len(args.kernel) > 1:
        raise InvalidArgument("--kernel", "one name in this mode", ", ".join(args.kernel))
    clock = clock_for(context.device)
    inputs = case.make_inputs(0)
    outputs = case.make_outputs(inputs)
    for _ in range(args.warm_up):
        call(inputs, outputs)
    clock.synchronize()
    iterations = args.iterations or 1
    with clock.profiled():
        for _ in range(iterations):
            call(inputs, outputs)
        clock.synchronize()
    print(f"{operator.name}: {case.name}: {name}: {iterations} calls on {context.device.name}")
    return OK


def ncu(operator: Operator, context: Context, args: argparse.Namespace) -> int:
    profiler = _profiler(operator, context, args.iterations or CALLS)
    all_cases = operator.cases(context)
    cases = _choice.cases(all_cases, args.case or [all_cases[0].name])
    kernels = {case.name: list(_choice.kernels_and_peers(
        case, args.kernel or [next(iter(case.kernels()))])) for case in cases}
    _check_reports(args, [(case, kernel) for case, names in kernels.items() for kernel in names])
    _check_files(args)
    ceilings = _ceilings(context)
    ceiling = ceilings["device_copy"]

    profiles: dict[str, dict[str, Profile]] = {}
    reports: dict[str, dict[str, str]] = {}
    for case in cases:
        names = profiler.report_names(case, kernels[case.name])
        reports[case.name] = {kernel: str(args.output or report) for kernel, report in names.items()}
        profiles[case.name] = {kernel: profiler.profile(case, kernel, args.output or report)
                               for kernel, report in names.items()}
        if args.compare:
            profiles[case.name][str(args.compare)] = _ncu.read(profiler.ncu, args.compare)
    if args.json:
        named = {kernel for names in kernels.values() for kernel in names}
        head = _results.document(operator.name, context.device, ceilings, context.seed, {
            peer: version for peer, version in versions(cases).items() if peer in named})
        print(json.dumps(head | {"calls": profiler.calls, "ceiling_GBps": ceiling * 1e-9, "cases": [
            _profiled(case, profiles[case.name], profiler.calls, ceiling)
            | {"reports": reports[case.name]} for case in cases]}, indent=1))
    for name, of_case in profiles.items():
        title = f"{operator.name}: {name} on {context.device.capabilities['name']}"
        if not args.json:
            print(f"{title}\n{_ncu.table(of_case, ceiling)}\n"
                  f"reports: {', '.join(reports[name].values())}")
        if args.plot:
            _ncu.plot(of_case, args.plot, title)
    if len(profiles) > 1 and not args.json:
        print(_ncu.overview(profiles, profiler.calls, ceiling))
    return OK


def _profiled(case: Case, profiles: dict[str, Profile], calls: int,
              ceiling: float) -> dict[str, Any]:
    """A case in the shape of a results file: the time per call of our first kernel and of the peers."""
    times = {kernel: {"gpu_us": round(p.total(TIME) / calls * 1e6, 3)}
             for kernel, p in profiles.items()}
    ours = next((times[kernel] for kernel in profiles if kernel in case.kernels()), {})
    return {"case": case.name, "params": dict(case.params), "ours": ours,
            "peer": {peer: times[peer] for peer in case.peers() if peer in times},
            "profiles": {kernel: _ncu.as_json(p, ceiling) for kernel, p in profiles.items()}}


def _profiler(operator: Operator, context: Context, calls: int = CALLS) -> Profiler:
    program = _ncu.program()
    if context.device.kind != "cuda":
        raise InvalidArgument("--device", "a GPU, since ncu profiles nothing else",
                              context.device.name)
    return Profiler(program, operator, context, calls)


def _check_reports(args: argparse.Namespace, runs: list[tuple[str, str]]) -> None:
    """A single report, comparison or plot needs a single kernel or case."""
    if args.output and len(runs) > 1:
        raise InvalidArgument("--output", "one kernel if the report is named",
                              ", ".join(kernel for _, kernel in runs))
    if args.output and args.output.suffix != ".ncu-rep":
        raise InvalidArgument("--output", "a file name that ends in .ncu-rep", str(args.output))
    if len({case for case, _ in runs}) > 1:
        for option in ("compare", "plot"):
            if getattr(args, option):
                raise InvalidArgument(f"--{option}", "one case", f"{len(args.case)} cases")


MODES = {"correctness": correctness, "performance": performance, "ncu": ncu,
         "single_run": single_run}
