"""The command line. Exit codes: 0 success, 1 failure, 2 a line it does not understand, 130 Ctrl-C."""

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
  correctness  every element against a reference in higher precision
  performance  the same, then ours and the peers by turns, beside the floor
  ncu          hardware counters of a kernel, beside the measured ceiling
  single_run   one kernel of one case and nothing else: for profilers

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
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} on, "
                                             f"given {text!r}")
        return int(text)

    return parse


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="penstock bench", epilog=EXAMPLES, allow_abbrev=False,
                  description="An operator beside its peers and its limit.",
                  formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("op", metavar="OP", nargs="?", help="the operator; --list names them")
    add("--mode", choices=MODES, default="performance", help="what to do; default: %(default)s")
    add("--kernel", metavar="NAME", action="append", default=[],
        help="one of ours, again for more; where nothing is compared with peers, also a peer")
    add("--case", metavar="NAME", nargs="+", action="extend", default=[], help="only these cases")
    add("--iterations", metavar="N", type=_count(1),
        help="samples in mode performance, else calls")
    add("--warm-up", metavar="N", type=_count(0), default=0, help="calls before a single_run")
    add("--output", metavar="FILE", type=Path,
        help="results to write; in mode ncu the report, else named after the kernel")
    add("--plot", metavar="FILE.png", type=Path, help="a picture of the figures, by matplotlib")
    add("--counters", nargs="*", metavar="NAME",
        help="in mode performance: also ncu's, of every case or these")
    add("--compare", metavar="FILE.ncu-rep", type=Path, help="in mode ncu: another report, beside")
    add("--device", default="best", help="cpu, cuda, cuda:1, ... or best: the first GPU, else the CPU")
    add("--seed", metavar="N", type=_count(0), help="of the inputs; default: a new one every time")
    add("--quick", action="store_true", help="small sizes: a look, not a measurement")
    add("--json", action="store_true", help="print one JSON document instead of text")
    add("--list", action="store_true", help="what can be run: operators, cases, kernels, peers")
    return made


def main(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    try:
        code = _run(args)
        sys.stdout.flush()  # what was printed counts only once it has arrived
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
