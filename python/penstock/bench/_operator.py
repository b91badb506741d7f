"""What an operator tells the harness about itself."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _core

if TYPE_CHECKING:
    import numpy

# Takes inputs and outputs. Fills the outputs and returns None, or returns outputs of its own. One
# that keeps something for every set of buffers has a method `prepare`, which takes the same.
Call = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Context:
    """Where a run takes place, from which seed, and whether small sizes will do."""

    device: _core.Device
    seed: int
    quick: bool = False

    def random(self, rotation: int) -> "numpy.random.Generator":
        """The same numbers for the same seed and rotation, however often it is asked."""
        import numpy

        return numpy.random.default_rng([self.seed, rotation])


@dataclass(frozen=True)
class Peer:
    """Somebody else's way to do the same."""

    version: str
    call: Call
    tolerance: float | None = None  # where it rounds more often than ours


class Yardstick(Peer):
    """What is timed like a peer and gives no answer that could be checked, such as a plain copy."""


@dataclass(frozen=True)
class Absent:
    """A peer that is not here, and why."""

    reason: str


class Case(ABC):
    """One problem: its data, its right answer, who solves it and what it costs at least.

    Inputs and outputs are NumPy arrays or torch tensors, or lists, tuples or dicts of them, and may
    hold plain numbers besides. `bytes` and `flop` are what one call has to move and to compute.
    """

    name: str
    params: Mapping[str, Any]
    tolerance: float
    bytes: int
    flop: int

    @abstractmethod
    def make_inputs(self, rotation: int) -> Any:
        """Inputs of their own for every rotation, the same whenever asked again."""

    @abstractmethod
    def make_outputs(self, inputs: Any) -> Any:
        """Room for the result, contiguous; the harness poisons it."""

    @abstractmethod
    def reference(self, inputs: Any) -> Any:
        """The right answer in higher precision, shaped like the outputs."""

    @abstractmethod
    def kernels(self) -> Mapping[str, Call]:
        """Our variants; the first is what users get."""

    def peers(self) -> Mapping[str, Peer | Absent]:
        return {}

    @abstractmethod
    def floor_us(self, ceilings: Mapping[str, float]) -> float:
        """The least time that these ceilings, in bytes a second, allow."""

    def error(self, got: Any, wanted: Any) -> Any:
        """Of every element, in f64: relative to the right answer, absolute where that is small."""
        import numpy

        return numpy.abs(got - wanted) / numpy.maximum(numpy.abs(wanted), 1)


class Operator(ABC):
    name: str
    summary: str

    @abstractmethod
    def cases(self, context: Context) -> list[Case]:
        """Every case for this device; smaller ones where the context is quick."""
