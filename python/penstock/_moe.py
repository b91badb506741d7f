"""The expert layer of mixture-of-experts models."""

from typing import Any

from . import _core
from ._memory import empty_like
from ._torch_part import TorchPart


def _load() -> Any:
    import penstock._moe_torch as torch_part

    return torch_part


_torch = TorchPart(_load)


def moe(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, *, gate_up_bias: Any = None,
        down_bias: Any = None, activation: str = "swiglu", alpha: float = 1.702, limit: float = 7.0,
        shared_gate_up: Any = None, shared_down: Any = None, shared_weights: Any = None,
        out: Any = None, slots: Any = None, layout: str = "concatenated", kernel: str = "best",
        workspace: Any = None, batch_invariant: bool = False, check: bool = False,
        stream: Any = None) -> Any:
    """Computes the experts of a mixture-of-experts layer, forward, and adds up their results.

    For every token t, with e = ids[t, k]::

        out[t] = sum over k of weights[t, k] * down[e] @ (silu(gate[e] @ x[t]) * (up[e] @ x[t]))

    `x` has shape (T, d), `gate_up` (E, 2n, d) and `down` (E, d, n), all with the same dtype: bf16,
    f16 or f32. The rows of `gate_up` are n rows of gate and then n of up, or with
    ``layout="interleaved"`` gate 0, up 0, gate 1, up 1 and so on. Weights that are stored as
    (E, d, 2n) and (E, n, d) are passed as views, ``gate_up.transpose(1, 2)`` in torch. `ids` (T, K),
    i32 or i64, and `weights` (T, K), f32, bf16 or f16, are what :func:`route` returns. An id of E or
    more adds nothing. d and n are multiples of 8.

    Arrays are NumPy arrays, torch tensors, Penstock arrays or other DLPack arrays.

    >>> import numpy, penstock
    >>> x = numpy.ones((2, 8), numpy.float32)
    >>> gate_up = numpy.full((3, 16, 8), 0.125, numpy.float32)  # 3 experts
    >>> down = numpy.arange(3, dtype=numpy.float32).repeat(64).reshape(3, 8, 8)
    >>> ids = numpy.array([[0, 1], [1, 2]], numpy.int32)
    >>> weights = numpy.array([[0.5, 0.5], [0.25, 0.75]], numpy.float32)
    >>> penstock.moe(x, gate_up, down, ids, weights)[:, 0].round(3)
    array([ 2.924, 10.235], dtype=float32)

    `gate_up_bias` (E, 2n), in the order of the rows of `gate_up`, and `down_bias` (E, d) are added to
    the products. `activation` replaces silu(gate) * up, which is ``"swiglu"``: ``"geglu"`` is
    gelu(gate) * up, ``"geglu_tanh"`` the same with the approximation by tanh, and
    ``"clamped_swiglu"`` is g * sigmoid(`alpha` * g) * (u + 1), where g is gate, at most `limit`, and
    u is up, clamped to [-`limit`, `limit`], as in gpt-oss.

    `shared_gate_up` (2m, d) and `shared_down` (d, m) are an expert of width m that computes every
    token in addition to the chosen ones, with the same layout and activation and without biases. Its
    result is multiplied by `shared_weights` (T), if given, and added last.

    With `slots` (E), i32, expert e is at index slots[e] of `gate_up` and `down`, which then hold any
    number S of experts; experts whose slot is not in [0, S) add nothing.

    The result is written to `out`, or to a new array of the library that `x` belongs to. `workspace`
    is memory for the call, of :func:`moe_workspace_bytes` bytes, that nothing else uses until the
    work is done; by default it is allocated. On a GPU the work is enqueued on `stream`; for torch
    tensors the default is torch's current stream. Only ``check=True`` waits for it, to raise
    InvalidArgument for a negative id, which is skipped otherwise. torch can compile and capture the
    call. It has no backward.

    `kernel` names the kernels of the products on a GPU. ``"best"`` chooses; ``"large"``, for many
    tokens per expert, ``"decode"``, for few, and ``"portable"``, the only one for f32 and for GPUs
    whose compute capability is not 9.0, compare them. ``"sequential"`` is ``"large"`` without
    overlapping loads, products and stores, to measure what that gains; the bits are the same.

    The same call gives the same bits every time. With ``batch_invariant=True``, which the kernel
    ``"decode"`` does not take, the result of a token does not depend on the other tokens of the batch
    either.
    """
    inputs = (x, gate_up, down, ids, weights, gate_up_bias, down_bias, shared_gate_up, shared_down,
              shared_weights, slots)
    options = activation, alpha, limit, layout, kernel, batch_invariant, check
    torch_part = _torch.of(x)
    if torch_part is not None:
        return torch_part.moe(inputs, options, out, workspace, stream)
    if out is None:
        out = empty_like(x, getattr(x, "shape", ()))
    _core.moe(*inputs, *options, out, workspace, stream)
    return out


def moe_workspace_bytes(x: Any, gate_up: Any, ids: Any, slots: Any = None, *,
                        shared_gate_up: Any = None) -> int:
    """The bytes of `workspace` that a call of :func:`moe` with arrays of these shapes and dtypes
    needs. The contents of the arrays are not read. A workspace is any contiguous array on the device
    of the other arrays.

    >>> import numpy, penstock
    >>> x, gate_up = numpy.zeros((2, 8), numpy.float32), numpy.zeros((3, 16, 8), numpy.float32)
    >>> ids = numpy.zeros((2, 1), numpy.int32)
    >>> workspace = numpy.empty(penstock.moe_workspace_bytes(x, gate_up, ids), numpy.uint8)
    """
    return _core.moe_workspace_bytes(x, gate_up, ids, slots, shared_gate_up)


def moe_plan(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, *, out: Any, workspace: Any,
             gate_up_bias: Any = None, down_bias: Any = None, activation: str = "swiglu",
             alpha: float = 1.702, limit: float = 7.0, shared_gate_up: Any = None,
             shared_down: Any = None, shared_weights: Any = None, slots: Any = None,
             layout: str = "concatenated", kernel: str = "best", batch_invariant: bool = False,
             check: bool = False, stream: Any = None) -> None:
    """The first step of :func:`moe`, for experts that arrive one after the other: sorts the tokens
    by expert.

    Then :func:`moe_experts` computes the experts that are in `slots`, and is repeated with other
    slots and weights; at the end :func:`moe_combine` adds up. All steps use the same `workspace`,
    `x`, `ids`, `weights` and `out`, and weights are views with swapped strides in all steps or in
    none. If each expert is computed once, the result has the bits of one moe() with all of them.
    Experts that are not computed add nothing.

    >>> import numpy, penstock
    >>> rng = numpy.random.default_rng(1)
    >>> call = {"x": rng.normal(size=(5, 8)).astype("f"), "out": numpy.empty((5, 8), "f"),
    ...         "gate_up": rng.normal(size=(4, 16, 8)).astype("f"),
    ...         "down": rng.normal(size=(4, 8, 8)).astype("f"),
    ...         "ids": rng.integers(0, 4, (5, 2)), "weights": rng.uniform(size=(5, 2)).astype("f")}
    >>> size = penstock.moe_workspace_bytes(call["x"], call["gate_up"], call["ids"])
    >>> call["workspace"] = numpy.empty(size, "u1")
    >>> penstock.moe_plan(**call)
    >>> penstock.moe_experts(**call)  # all of them at once
    >>> out = penstock.moe_combine(**call)
    >>> bool((out == penstock.moe(**{**call, "out": None})).all())
    True
    """
    _step("moe_plan",
          (x, gate_up, down, ids, weights, gate_up_bias, down_bias, shared_gate_up, shared_down,
           shared_weights, slots),
          (activation, alpha, limit, layout, kernel, batch_invariant, check), out, workspace, stream)


def moe_experts(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, *, out: Any, workspace: Any,
                gate_up_bias: Any = None, down_bias: Any = None, activation: str = "swiglu",
                alpha: float = 1.702, limit: float = 7.0, shared_gate_up: Any = None,
                shared_down: Any = None, shared_weights: Any = None, slots: Any = None,
                layout: str = "concatenated", kernel: str = "best", batch_invariant: bool = False,
                check: bool = False, stream: Any = None) -> None:
    """The second step of :func:`moe`: computes the experts that are in `slots` now. See
    :func:`moe_plan`.

    >>> import numpy, penstock
    >>> x, out = numpy.ones((1, 8), "f"), numpy.empty((1, 8), "f")
    >>> slots = numpy.full(4, -1, "i4")  # 4 experts, none of which is there
    >>> room = {"gate_up": numpy.empty((1, 16, 8), "f"), "down": numpy.empty((1, 8, 8), "f")}
    >>> call = {"x": x, "ids": numpy.array([[1, 3]]), "weights": numpy.ones((1, 2), "f"), "out": out,
    ...         "slots": slots, **room}
    >>> size = penstock.moe_workspace_bytes(x, room["gate_up"], call["ids"], slots)
    >>> call["workspace"] = numpy.empty(size, "u1")
    >>> penstock.moe_plan(**call)
    >>> for expert in range(4):
    ...     room["gate_up"][:], room["down"][:] = 0.125, expert  # loads the expert
    ...     slots[:] = -1
    ...     slots[expert] = 0
    ...     penstock.moe_experts(**call)
    >>> penstock.moe_combine(**call)[0, 0].round(3)  # 8 silu(1) (1 + 3)
    np.float32(23.394)
    """
    _step("moe_experts",
          (x, gate_up, down, ids, weights, gate_up_bias, down_bias, shared_gate_up, shared_down,
           shared_weights, slots),
          (activation, alpha, limit, layout, kernel, batch_invariant, check), out, workspace, stream)


def moe_combine(x: Any, gate_up: Any, down: Any, ids: Any, weights: Any, *, out: Any, workspace: Any,
                gate_up_bias: Any = None, down_bias: Any = None, activation: str = "swiglu",
                alpha: float = 1.702, limit: float = 7.0, shared_gate_up: Any = None,
                shared_down: Any = None, shared_weights: Any = None, slots: Any = None,
                layout: str = "concatenated", kernel: str = "best", batch_invariant: bool = False,
                check: bool = False, stream: Any = None) -> Any:
    """The last step of :func:`moe`: adds up the results of the experts that were computed, writes
    `out` and returns it. See :func:`moe_plan`.

    >>> import numpy, penstock
    >>> call = {"x": numpy.ones((2, 8), "f"), "gate_up": numpy.ones((3, 16, 8), "f"),
    ...         "down": numpy.ones((3, 8, 8), "f"), "ids": numpy.array([[0], [2]]),
    ...         "weights": numpy.ones((2, 1), "f"), "out": numpy.empty((2, 8), "f")}
    >>> size = penstock.moe_workspace_bytes(call["x"], call["gate_up"], call["ids"])
    >>> call["workspace"] = numpy.empty(size, "u1")
    >>> penstock.moe_plan(**call)
    >>> penstock.moe_combine(**call)[:, 0]  # no expert was computed
    array([0., 0.], dtype=float32)
    """
    _step("moe_combine",
          (x, gate_up, down, ids, weights, gate_up_bias, down_bias, shared_gate_up, shared_down,
           shared_weights, slots),
          (activation, alpha, limit, layout, kernel, batch_invariant, check), out, workspace, stream)
    return out


def _step(name: str, inputs: tuple[Any, ...], options: tuple[Any, ...], out: Any, workspace: Any,
          stream: Any) -> None:
    torch_part = _torch.of(inputs[0])
    if torch_part is not None:
        torch_part.step(name, inputs, options, out, workspace, stream)
    else:
        getattr(_core, name)(*inputs, *options, out, workspace, stream)
