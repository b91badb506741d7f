"""How an operator describes itself to the benchmarks."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _core
from ._timing import Plan

if TYPE_CHECKING:
    import numpy

# Takes inputs and outputs. Either fills the outputs and returns None, or returns outputs of its own.
# A call that keeps something for every set of buffers, such as a captured graph, also has a method
# `prepare` with the same arguments.
Call = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Context:
    """The device and the seed of a run; `quick` asks for small sizes."""

    device: _core.Device
    seed: int
    quick: bool = False

    def random(self, rotation: int) -> "numpy.random.Generator":
        """A generator that depends on the seed and `rotation` alone."""
        import numpy

        return numpy.random.default_rng([self.seed, rotation])


@dataclass(frozen=True)
class Peer:
    """Another implementation of the same function."""

    version: str
    call: Call
    tolerance: float | None = None  # if it rounds more often than ours


class Yardstick(Peer):
    """Timed like a peer, but without a result to check, such as a plain copy of the same size."""


@dataclass(frozen=True)
class Absent:
    """A peer that is not installed or does not apply, and why."""

    reason: str


class Case(ABC):
    """One problem: its data, the right answer, the kernels and peers that solve it, and its limits.

    Inputs and outputs are NumPy arrays or torch tensors, or lists, tuples or dicts of them; they may
    also hold plain numbers. `bytes` and `flop` are what one call has to move and to compute.
    """

    name: str
    params: Mapping[str, Any]
    tolerance: float
    bytes: int
    flop: int
    most_enqueued: int | None = None  # calls in a row, fewer than usual if a call launches many kernels
    fewest_sets = 1  # of buffers; more if a call uses only a part of them, which could stay in the cache
    yardstick = "the same bytes at the measured rate of a large copy"  # what the roof is

    @abstractmethod
    def make_inputs(self, rotation: int) -> Any:
        """New inputs; the same values every time for the same `rotation`."""

    @abstractmethod
    def make_outputs(self, inputs: Any) -> Any:
        """Contiguous memory for the result. It is filled with a poison value before each check."""

    @abstractmethod
    def reference(self, inputs: Any) -> Any:
        """The right answer in higher precision, in the shape of what is compared.

        It may set `tolerance`, if that depends on the inputs.
        """

    def compared(self, result: Any) -> Any:
        """The part of a result that is compared with the reference; by default all of it."""
        return result

    @abstractmethod
    def kernels(self) -> Mapping[str, Call]:
        """Our kernels by name. The first is the one that users get."""

    def peers(self) -> Mapping[str, Peer | Absent]:
        return {}

    def engines(self) -> Mapping[str, Call]:
        """Calls that keep one engine busy with this case's share of work and do nothing else.

        They are timed in the same run. The floor of the case is the best time of the slowest engine;
        a result faster than 0.98 x the floor is dropped. A copy that a kernel could beat is no engine
        but a :class:`Yardstick`.
        """
        return {}

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        """The time of `bytes` at measured rates, in bytes per second. A yardstick: it may be beaten."""
        floor_us = getattr(self, "floor_us", None)
        if floor_us is None:
            raise NotImplementedError(f"{type(self).__name__}: define roof_us")
        warnings.warn("Case.floor_us is now called roof_us", DeprecationWarning, stacklevel=2)
        return float(floor_us(ceilings))

    def roof_parts(self) -> Mapping[str, Call]:
        """Calls that are timed in the same run because the roof is made of their times."""
        return {}

    def roof_of_parts(self, ceilings: Mapping[str, float], parts_us: Mapping[str, float]) -> float:
        """The roof, given the times of `roof_parts`."""
        return self.roof_us(ceilings)

    def more_metrics(self) -> dict[str, Any]:
        """Further metrics of this case for the results file. Called after its check."""
        return {}

    def error(self, got: Any, wanted: Any) -> Any:
        """The error of every element in f64: relative if the right answer is above 1, else absolute."""
        import numpy

        return numpy.abs(got - wanted) / numpy.maximum(numpy.abs(wanted), 1)


class Operator(ABC):
    name: str
    summary: str
    plan = Plan()  # of the timed calls, unless sizes are small

    @abstractmethod
    def cases(self, context: Context) -> list[Case]:
        """All cases for this device; smaller ones if `context.quick`."""
