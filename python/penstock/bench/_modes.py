"""What each mode does. All return the exit code: 0 only where everything was right."""

import argparse
import json
import math
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._errors import InvalidArgument
from .._measure import Limits, limits
from . import _choice, _ncu, _plot, _results, _table, operators
from ._clock import clock_for
from ._correctness import check
from ._counters import Profile
from ._operator import Context, Operator
from ._performance import run_case, versions
from ._progress import Progress
from ._rotation import cache_bytes
from ._timing import Plan

OK, FAILED = 0, 1
PROFILED_CALLS = 3


def _complain(text: str) -> None:
    print(text, file=sys.stderr)


def _repro(operator: Operator, context: Context, mode: str, case: str,
           kernel: str | None = None) -> list[str]:
    """The words behind `python` that run one case again, with the same numbers."""
    return ["-m", "penstock.bench", operator.name, "--mode", mode, "--case", case,
            *(["--kernel", kernel] if kernel else []), "--device", context.device.name, "--seed",
            str(context.seed), *(["--quick"] if context.quick else [])]


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
    told: list[dict[str, Any]] = []
    for case in _choice.cases(operator.cases(context), args.case):
        calls = _choice.kernels_and_peers(case, args.kernel)
        for kernel, verdict in check(case, calls, clock).items():
            error = verdict.max_error
            told.append({"case": case.name, "kernel": kernel, "correct": verdict.right,
                         "max_error": None if math.isnan(error) else error,
                         "tolerance": case.tolerance, "complaint": verdict.complaint})
            if not verdict.right:
                again = _repro(operator, context, "correctness", case.name, kernel)
                _complain(f"{case.name}: {kernel}: {verdict.complaint}\n"
                          f"  again: python {shlex.join(again)}")
    if args.json:
        print(json.dumps({"name": operator.name, "device": context.device.name,
                          "seed": context.seed, "checks": told}, indent=1))
    else:
        print(f"{operator.name} on {context.device.name}, seed {context.seed}")
        print(_table.aligned(
            [["case", "kernel", "", "max error", "tolerance"],
             *([entry["case"], entry["kernel"], "right" if entry["correct"] else "WRONG",
                "-" if entry["max_error"] is None else f"{entry['max_error']:.3g}",
                f"{entry['tolerance']:.3g}"] for entry in told)]))
    return OK if all(entry["correct"] for entry in told) else FAILED


def performance(operator: Operator, context: Context, args: argparse.Namespace) -> int:
    _check_files(args)
    cases = _choice.cases(operator.cases(context), args.case)
    kernels = {case.name: _choice.kernels(case, args.kernel) for case in cases}
    clock = clock_for(context.device)
    ceilings = _ceilings(context)
    rates = {name: ceilings[name] for name in ceilings.data["rates"]}
    plan = Plan.quick() if context.quick else Plan()
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
            again = _repro(operator, context, "correctness", case.name)
            _complain(f"{case.name}: not measured: {complaint}\n"
                      f"  again: python {shlex.join(again)}")
            failed = True
        if measured.entry is not None:
            results["cases"].append(measured.entry)

    if args.json:
        print(json.dumps(results, indent=1))
    elif results["cases"]:
        what = "the GPU's time" if context.device.kind == "cuda" else "time of a call"
        print(f"{operator.name} on {context.device.capabilities['name']}, {what}, "
              f"seed {context.seed}\n{_table.of_results(results)}")
    if results["cases"]:  # else the last good file stays
        if args.output:
            _results.write(args.output, results)
            _complain(f"results: {args.output}; a page of them: penstock report {args.output}")
        if args.plot:
            _plot.of_results(results, args.plot)
    return FAILED if failed else OK


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
    program = _ncu.program()
    if context.device.kind != "cuda":
        raise InvalidArgument("--device", "a GPU, as ncu looks at nothing else",
                              context.device.name)
    case = _choice.one_case(operator.cases(context), args.case)
    names = list(_choice.kernels_and_peers(case, args.kernel or [next(iter(case.kernels()))]))
    if args.output and len(names) > 1:
        raise InvalidArgument("--output", "one kernel where the report's name is given",
                              ", ".join(names))
    if args.output and args.output.suffix != ".ncu-rep":
        raise InvalidArgument("--output", "a name that ends in .ncu-rep", str(args.output))
    _check_files(args)
    ceiling = _ceilings(context)["device_copy"]

    profiles: dict[str, Profile] = {}
    reports: dict[str, str] = {}
    for name in names:
        report = args.output or Path(f"{operator.name}_{case.name}_{name}.ncu-rep")
        command = [sys.executable, *_repro(operator, context, "single_run", case.name, name),
                   "--iterations", str(args.iterations or PROFILED_CALLS), "--warm-up", "1"]
        with Progress() as progress:
            progress.show(f"ncu: {name}")
            profiles[name] = _ncu.profile(program, report, command)
        reports[name] = os.fspath(report)
    if args.compare:
        profiles[str(args.compare)] = _ncu.read(program, args.compare)
    title = f"{operator.name}: {case.name} on {context.device.capabilities['name']}"
    if args.json:
        print(json.dumps({"name": operator.name, "case": case.name, "seed": context.seed,
                          "ceiling_GBps": ceiling * 1e-9, "reports": reports,
                          "profiles": _ncu.as_json(profiles, ceiling)}, indent=1))
    else:
        print(f"{title}\n{_ncu.table(profiles, ceiling)}\nreports: {', '.join(reports.values())}")
    if args.plot:
        _ncu.plot(profiles, args.plot, title)
    return OK


MODES = {"correctness": correctness, "performance": performance, "ncu": ncu,
         "single_run": single_run}
