"""penstock.MoE. This module imports torch; penstock imports it when MoE is first used."""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from ._errors import InvalidArgument
from ._moe import moe
from ._route import MOST_CHOICES, route

_MOST_EXPERTS = 512  # of route()


class MoE(nn.Module):
    """A mixture-of-experts layer as a torch module, forward only: router, experts and, optionally, a
    shared expert.

    >>> import torch, penstock
    >>> layer = penstock.MoE(64, 32, experts=8, choices=2, renormalise=True)
    >>> layer(torch.randn(3, 5, 64)).shape
    torch.Size([3, 5, 64])

    `d` is the hidden size, `width` the width of an expert, both multiples of 8; every token has
    `choices` of the `experts`. `scoring`, `renormalise`, `scale`, `groups` and `top_groups` are those
    of :func:`route`; `activation`, `alpha`, `limit`, `layout` and `batch_invariant` those of
    :func:`moe`. `shared_width` is the width of a shared expert, 0 for none.

    The parameters have the names of transformers:

    - ``gate.weight`` (experts, d), and ``gate.bias`` (experts) with `router_bias`;
    - ``gate.e_score_correction_bias`` (experts), f32, with ``scoring="sigmoid"``: see `bias` of
      :func:`route`. It stays f32 when the layer is converted to another dtype, because rounding it
      would change which experts are chosen;
    - ``experts.gate_up_proj`` (experts, 2 width, d) and ``experts.down_proj`` (experts, d, width), with
      `transposed` (experts, d, 2 width) and (experts, width, d), as gpt-oss has them, and with `bias`
      ``experts.gate_up_proj_bias`` and ``experts.down_proj_bias``;
    - ``shared_expert.gate_up_proj`` (2 shared_width, d) and ``shared_expert.down_proj`` (d,
      shared_width), which transformers stores as three matrices, and with `shared_gate`
      ``shared_expert_gate.weight`` (1, d), whose product with a token is the logit of the shared
      expert's weight.

    They do not require gradients, and are drawn from a normal distribution with standard deviation
    0.02; load others with ``load_state_dict``.
    """

    def __init__(self, d: int, width: int, *, experts: int, choices: int,
                 scoring: str = "softmax_topk", renormalise: bool = False, scale: float = 1.0,
                 groups: int = 1, top_groups: int = 1, router_bias: bool = False,
                 activation: str = "swiglu", alpha: float = 1.702, limit: float = 7.0,
                 bias: bool = False, shared_width: int = 0, shared_gate: bool = False,
                 layout: str = "concatenated", transposed: bool = False, batch_invariant: bool = False,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        for name, size in (("d", d), ("width", width), ("shared_width", shared_width)):
            if size % 8 or size < 0 or size == 0 and name != "shared_width":
                raise InvalidArgument(name, "a multiple of 8", str(size))
        if shared_gate and not shared_width:
            raise InvalidArgument("shared_gate", "a shared expert, with shared_width", "0")
        if not 1 <= experts <= _MOST_EXPERTS:
            raise InvalidArgument("experts", f"1 to {_MOST_EXPERTS}", str(experts))
        if not 1 <= choices <= min(MOST_CHOICES, experts):
            raise InvalidArgument("choices", f"1 to {MOST_CHOICES}, and at most {experts}, the number of "
                                  "experts", str(choices))
        self.choices, self.transposed = choices, bool(transposed)
        self._routing: dict[str, Any] = {"scoring": scoring, "renormalise": renormalise,
                                         "scale": scale, "groups": groups, "top_groups": top_groups}
        self._options: dict[str, Any] = {"activation": activation, "alpha": alpha, "limit": limit,
                                         "layout": layout, "batch_invariant": batch_invariant}
        _refuse_options(experts, choices, self._routing, self._options)

        def weights(holder: nn.Module | None = None, **shapes: tuple[int, ...]) -> nn.Module:
            holder = nn.Module() if holder is None else holder
            for name, shape in shapes.items():
                values = torch.empty(shape, device=device, dtype=dtype)
                holder.register_parameter(name, nn.Parameter(values, requires_grad=False))
            return holder

        self.gate = weights(_Router(), weight=(experts, d))
        self.gate.register_parameter("bias", weights(bias=(experts,)).bias if router_bias else None)
        scores = (torch.zeros(experts, device=device, dtype=torch.float32) if scoring == "sigmoid"
                  else None)
        self.gate.register_buffer("e_score_correction_bias", scores)
        shapes = {"gate_up_proj": (experts, 2 * width, d), "down_proj": (experts, d, width)}
        if transposed:
            shapes = {name: (count, columns, rows) for name, (count, rows, columns) in shapes.items()}
        self.experts = weights(**shapes)
        biases = weights(gate_up_proj_bias=(experts, 2 * width), down_proj_bias=(experts, d))
        for name, each in biases.named_parameters():
            self.experts.register_parameter(name, each if bias else None)
        self.shared_expert = (weights(gate_up_proj=(2 * shared_width, d),
                                      down_proj=(d, shared_width)) if shared_width else None)
        self.shared_expert_gate = weights(weight=(1, d)) if shared_gate else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights anew, and sets biases to 0."""
        for name, each in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(each)
            else:
                nn.init.normal_(each, std=0.02)

    def forward(self, x: Any) -> Any:
        """The layer of every token of `x` (..., d), in the shape of `x`."""
        tokens = x.reshape(-1, x.shape[-1])
        bias = self.gate.e_score_correction_bias
        ids, weights = route(self._logits(tokens), self.choices,
                             bias=None if bias is None else bias.float(), **self._routing)
        shared, weight = self.shared_expert, None
        if self.shared_expert_gate is not None:
            weight = linear(tokens, self.shared_expert_gate.weight).sigmoid().flatten()
        gate_up, down = self.experts.gate_up_proj, self.experts.down_proj
        if self.transposed:
            gate_up, down = gate_up.mT, down.mT
        out = moe(tokens, gate_up, down, ids, weights,
                  gate_up_bias=self.experts.gate_up_proj_bias, down_bias=self.experts.down_proj_bias,
                  shared_gate_up=None if shared is None else shared.gate_up_proj,
                  shared_down=None if shared is None else shared.down_proj, shared_weights=weight,
                  **self._options)
        return out.view(x.shape)

    def _logits(self, tokens: Any) -> Any:
        matrix, bias = self.gate.weight, self.gate.bias
        if self._routing["scoring"] == "sigmoid":  # in f32, as the models that use it do
            return linear(tokens.float(), matrix.float(), None if bias is None else bias.float())
        return linear(tokens, matrix, bias)

    def extra_repr(self) -> str:
        down = self.experts.down_proj
        experts, d, width = down.mT.shape if self.transposed else down.shape
        return f"d={d}, width={width}, experts={experts}, choices={self.choices}"


class _Router(nn.Module):
    """The weights of a router, of which the correction of the scores stays f32."""

    e_score_correction_bias: Any

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        before = self.e_score_correction_bias
        super()._apply(fn, recurse)
        after = self.e_score_correction_bias
        if after is not None and after.dtype != before.dtype:
            self.e_score_correction_bias = before.to(after.device)
        return self


def _refuse_options(experts: int, choices: int, routing: dict[str, Any], options: dict[str, Any]) -> None:
    """Refuses what route() and moe() would refuse in the first forward pass, by calling them without
    tokens."""

    def empty(*shape: int) -> Any:
        return torch.empty(shape, device="cpu", dtype=torch.float32)

    ids, weights = route(empty(0, experts), choices, **routing)
    moe(empty(0, 8), empty(experts, 16, 8), empty(experts, 8, 8), ids, weights, **options)
