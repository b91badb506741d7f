"""Selects cases and kernels by name."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from .._errors import InvalidArgument
from ._errors import BenchError
from ._operator import Call, Case
from ._performance import answering, present

T = TypeVar("T")


def _pick(option: str, wanted: Sequence[str], there: dict[str, T]) -> dict[str, T]:
    for name in wanted:
        if name not in there:
            raise InvalidArgument(option, f"one of {', '.join(there)}", repr(name))
    return {name: there[name] for name in dict.fromkeys(wanted)} if wanted else there


def cases(all_cases: Iterable[Case], wanted: Sequence[str], option: str = "--case") -> list[Case]:
    there = {case.name: case for case in all_cases}
    if not there:
        raise BenchError("this operator has no cases for this device; use --device cpu")
    return list(_pick(option, wanted, there).values())


def one_case(all_cases: Sequence[Case], wanted: Sequence[str]) -> Case:
    if len(wanted) > 1:
        raise InvalidArgument("--case", "one name in this mode", ", ".join(wanted))
    return cases(all_cases, wanted)[0]


def kernels(case: Case, wanted: Sequence[str]) -> dict[str, Call]:
    """Our kernels: all, or those that were named."""
    return _pick("--kernel", wanted, dict(case.kernels()))


def checked(case: Case, wanted: Sequence[str]) -> dict[str, Call]:
    return _pick("--kernel", wanted, {**case.kernels(), **answering(case)})


def kernels_and_peers(case: Case, wanted: Sequence[str]) -> dict[str, Call]:
    return _pick("--kernel", wanted, {**case.kernels(), **present(case)})
