"""The command line. Exit codes: 0 success, 1 failure, 2 wrong arguments, 130 Ctrl-C."""

import argparse
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from .. import _core
from .._errors import Error, InvalidArgument
from . import operators
from ._modes import FAILED, MODES, list_operators
from ._operator import Context

MISUSED, INTERRUPTED = 2, 130

EXAMPLES = """\
modes:
  correctness  checks every element against a reference in higher precision
  performance  checks, then times our kernels and the peers in interleaved runs
  ncu          shows hardware counters of a kernel next to the measured copy rate
  single_run   runs one kernel of one case and nothing else, for profilers

columns of mode performance:
  ours         GPU time of one call on a GPU, call time on the CPU (median)
  floor        best time of the slowest engine alone; cannot be beaten
  roof         a yardstick, such as the same bytes at the measured copy rate; may be beaten
  sustained    time per call of back-to-back calls

examples:
  penstock bench --list
  penstock bench iterate --quick
  penstock bench iterate --output bench/results/iterate.json
  penstock bench iterate --mode correctness --case ragged --seed 7
  penstock bench iterate --mode ncu --kernel default --kernel torch
  penstock bench resample --mode ncu --kernel baseline --kernel best
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _complain(f"{message} (see: penstock bench --help)")
        sys.exit(MISUSED)


def _complain(message: str) -> None:
    print(f"penstock: error: {' '.join(message.split())}", file=sys.stderr)


def _count(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, "
                                             f"got {text!r}")
        return int(text)

    return parse


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="penstock bench", epilog=EXAMPLES, allow_abbrev=False,
                  description="Checks an operator, then times or profiles it next to its peers.",
                  formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("op", metavar="OP", nargs="?", help="operator to run; --list shows all")
    add("--mode", choices=MODES, default="performance", help="what to do (default: %(default)s)")
    add("--kernel", metavar="NAME", action="append", default=[],
        help="one of our kernels, or a peer except in mode performance; may be repeated")
    add("--case", metavar="NAME", nargs="+", action="extend", default=[], help="run only these cases")
    add("--iterations", metavar="N", type=_count(1),
        help="samples per kernel in mode performance, calls in the other modes")
    add("--warm-up", metavar="N", type=_count(0), default=0, help="untimed calls before a single_run")
    add("--output", metavar="FILE", type=Path,
        help="results file to write; in mode ncu, the report (default: named after the kernel)")
    add("--plot", metavar="FILE.png", type=Path, help="bar chart to write; needs matplotlib")
    add("--counters", nargs="*", metavar="NAME",
        help="in mode performance: add ncu's counters to all cases or to these")
    add("--compare", metavar="FILE.ncu-rep", type=Path,
        help="in mode ncu: another report to compare with")
    add("--device", default="best",
        help="cpu, cuda, cuda:1, ... or best, the first GPU if there is one (default: best)")
    add("--seed", metavar="N", type=_count(0), help="seed of the inputs (default: random)")
    add("--quick", action="store_true", help="small sizes: a quick check, not a measurement")
    add("--json", action="store_true", help="print JSON instead of text")
    add("--list", action="store_true", help="list operators, cases, kernels and peers, and run nothing")
    return made


def main(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    try:
        code = _run(args)
        sys.stdout.flush()  # a full disk or a closed pipe is an error, too
        return code
    except KeyboardInterrupt:
        print("penstock: interrupted", file=sys.stderr)
        return INTERRUPTED
    except InvalidArgument as error:
        _complain(f"{error} (see: penstock bench --help)")
        return MISUSED
    except OSError as error:
        _complain(f"{error.filename or 'standard output'}: {error.strerror}")
        return FAILED
    except (Error, MemoryError) as error:
        _complain(str(error))
        return FAILED


def _run(args: argparse.Namespace) -> int:
    seed = secrets.randbelow(1 << 32) if args.seed is None else args.seed
    context = Context(_core.Device(args.device), seed, args.quick)
    if args.list:
        return list_operators(args.op, context, args.json)
    if args.op is None:
        raise InvalidArgument("OP", f"one of {', '.join(operators.names())}", "nothing")
    if args.compare and args.mode != "ncu":
        raise InvalidArgument("--compare", "--mode ncu", f"--mode {args.mode}")
    if args.counters is not None and args.mode != "performance":
        raise InvalidArgument("--counters", "--mode performance", f"--mode {args.mode}")
    return MODES[args.mode](operators.find(args.op), context, args)
