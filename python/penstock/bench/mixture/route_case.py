"""Cases of route: logits to experts and weights."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

from ... import route
from .._captured import Captured
from .._compiled import NEEDS_TRITON, Compiled, has_triton
from .._operator import Absent, Call, Case, Context, Peer

SIZES = {"bf16": 2, "f32": 4}
# Relative to weights of at most 1, times the scale: a few roundings in f32, of which exp is one.
TOLERANCE = 2.0**-19
# Scores that are closer than this may be ordered by the rounding of an implementation.
CLEAR = 1e-5


@dataclass(frozen=True)
class Rule:
    """How experts are chosen and weighted: the arguments of route()."""

    experts: int
    choices: int
    scoring: str
    dtype: str = "bf16"  # of the logits; f32 on the CPU, since NumPy has no bf16
    groups: int = 1
    top_groups: int = 1
    renormalise: bool = False
    scale: float = 1.0


class Outputs(list[Any]):
    """Ids and weights. Unlike a tuple, it can be referenced weakly, by captured calls."""


class RouteCase(Case):
    """Inputs are logits (T, E) and, for sigmoid, a bias (E), else None.

    Tokens with nearly equal scores, whose choice depends on rounding, are not compared.
    """

    most_enqueued = 40

    def __init__(self, context: Context, name: str, tokens: int, rule: Rule) -> None:
        self.name = name
        self._context, self._tokens, self._rule = context, tokens, rule
        self._on_cpu = context.device.kind == "cpu"
        dtype = "f32" if self._on_cpu else rule.dtype
        self.params = {"tokens": tokens} | asdict(rule) | {"dtype": dtype}
        self.tolerance = TOLERANCE * rule.scale
        self._dtype = dtype
        bias = 4 * rule.experts if self._biased else 0
        self.bytes = tokens * (rule.experts * SIZES[dtype] + 8 * rule.choices) + bias
        self.flop = tokens * rule.experts  # one exponential per logit

    @property
    def _biased(self) -> bool:
        return self._rule.scoring == "sigmoid"

    def make_inputs(self, rotation: int) -> Any:
        random = self._context.random(rotation)
        logits = random.standard_normal((self._tokens, self._rule.experts), dtype="f4")
        bias = (0.1 * random.standard_normal(self._rule.experts)).astype("f4")
        if self._on_cpu:
            return [logits, bias if self._biased else None]
        import torch

        device = self._context.device.name
        dtype = torch.bfloat16 if self._dtype == "bf16" else torch.float32
        return [torch.from_numpy(logits).to(device, dtype),
                torch.from_numpy(bias).to(device) if self._biased else None]

    def make_outputs(self, inputs: Any) -> Any:
        shape = self._tokens, self._rule.choices
        if self._on_cpu:
            import numpy

            return Outputs([numpy.empty(shape, "i4"), numpy.empty(shape, "f4")])
        import torch

        return Outputs(torch.empty(shape, dtype=dtype, device=self._context.device.name)
                       for dtype in (torch.int32, torch.float32))

    @cached_property
    def _answer(self) -> tuple[Any, Any, Any]:
        """The ids, the weights, and the tokens whose choice is clear; in f64, on the host."""
        logits, bias = self.make_inputs(0)
        if not self._on_cpu:
            logits, bias = (None if each is None else each.float().cpu().numpy()
                            for each in (logits, bias))
        return answer(self._rule, logits, bias)

    def compared(self, result: Any) -> Any:
        clear = self._answer[2]
        if not self._on_cpu:
            import torch

            clear = torch.from_numpy(clear).to(result[0].device)
        return [each[clear] for each in result]

    def reference(self, inputs: Any) -> Any:
        ids, weights, clear = self._answer
        return [ids[clear], weights[clear]]

    @cached_property
    def _kernels(self) -> dict[str, Call]:
        captured: dict[str, Call] = {} if self._on_cpu else {"captured": Captured(self._best)}
        return {"best": self._best, **captured}

    def kernels(self) -> Mapping[str, Call]:
        return self._kernels

    def _best(self, inputs: Any, outputs: Any) -> None:
        rule = self._rule
        logits, bias = inputs
        ids, weights = outputs
        route(logits, rule.choices, scoring=rule.scoring, bias=bias, groups=rule.groups,
              top_groups=rule.top_groups, renormalise=rule.renormalise, scale=rule.scale, ids=ids,
              weights=weights)

    @cached_property
    def _peers(self) -> dict[str, Peer | Absent]:
        if self._on_cpu:
            import numpy

            return {"numpy": Peer(numpy.__version__, self._numpy)}
        import torch

        from . import torch_route

        eager = partial(torch_route.choose, self._rule)
        return {"torch": Peer(torch.__version__, eager),
                "torch.compile": Peer(torch.__version__, Captured(Compiled(eager)))
                if has_triton() else NEEDS_TRITON}

    def peers(self) -> Mapping[str, Peer | Absent]:
        return self._peers

    def _numpy(self, inputs: Any, outputs: Any) -> None:
        outputs[0][:], outputs[1][:], _ = answer(self._rule, *inputs)

    def roof_us(self, ceilings: Mapping[str, float]) -> float:
        return self.bytes / ceilings["host_copy" if self._on_cpu else "device_copy"] * 1e6


def answer(rule: Rule, logits: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Ids, weights, and the tokens whose choice is clear. The expert with the lower index wins a tie."""
    import numpy

    scores = logits.astype("f8")
    values = 1 / (1 + numpy.exp(-scores)) if rule.scoring == "sigmoid" else numpy.exp(
        scores - scores.max(axis=1, keepdims=True))
    compared = values + bias if rule.scoring == "sigmoid" else scores
    clear = numpy.ones(len(scores), bool)
    if rule.groups > 1:
        grouped = compared.reshape(len(scores), rule.groups, -1)
        sums = numpy.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
        order = numpy.argsort(-sums, axis=1, kind="stable")
        clear &= _gaps(sums, order, rule.top_groups - 1, rule.top_groups)
        out_of_it = numpy.ones(sums.shape, bool)
        numpy.put_along_axis(out_of_it, order[:, :rule.top_groups], False, 1)
        compared = numpy.where(out_of_it[:, :, None], -numpy.inf, grouped).reshape(scores.shape)
    order = numpy.argsort(-compared, axis=1, kind="stable")
    clear &= _gaps(compared, order, 0, rule.choices)
    ids = order[:, :rule.choices]
    weights = numpy.take_along_axis(values, ids, 1)
    if rule.scoring == "softmax_topk":
        weights = weights / values.sum(axis=1, keepdims=True)
    if rule.renormalise or rule.scoring == "topk_softmax":
        weights = weights / weights.sum(axis=1, keepdims=True)
    return ids, weights * rule.scale, numpy.flatnonzero(clear)


def _gaps(values: Any, order: Any, first: int, last: int) -> Any:
    """Whether all neighbours from place `first` to place `last` of the order differ clearly."""
    import numpy

    last = min(last, values.shape[1] - 1)
    ordered = numpy.take_along_axis(values, order[:, first:last + 1], 1)
    return (ordered[:, :-1] - ordered[:, 1:] > CLEAR).all(axis=1)
