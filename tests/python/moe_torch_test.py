"""route() and moe() of torch's tensors on the CPU, and compiled. gpu_moe_test.py has a GPU."""

import pytest

import moe_support
import penstock
from penstock import moe, route

torch = pytest.importorskip("torch", reason="torch is not installed here")


# The options of the operators, after their tensors.
OPTIONS = "swiglu", 1.702, 7.0, "concatenated", "best", False, False


def draw(seed=1, dtype=torch.float32, **shapes):
    """The arguments of moe()."""
    call = {name: torch.from_numpy(each) for name, each in moe_support.draw(seed, **shapes).items()}
    return {name: each.to(dtype) if name in ("x", "gate_up", "down") else each
            for name, each in call.items()}


def with_more(call):
    """The call with biases and a shared expert."""
    arrays = {name: call[name].float().numpy() for name in ("x", "gate_up")}
    drawn = {name: torch.from_numpy(each) for name, each in moe_support.more(arrays).items()}
    return call | {name: each if name == "shared_weights" else each.to(call["x"].dtype)
                   for name, each in drawn.items()}


def transposed(weights):
    """The same weights, stored with swapped last dimensions."""
    return weights.mT.contiguous().mT


def reference(call):
    """The result in f64, and its difference to one that is rounded as moe() does."""
    dtype = call["x"].dtype
    arrays = {name: each.double().numpy() if isinstance(each, torch.Tensor) and
              each.is_floating_point() else each for name, each in call.items()}
    wanted = moe_support.reference(**arrays)
    rounded = moe_support.reference(
        **arrays, rounded=lambda each: torch.from_numpy(each).to(dtype).double().numpy())
    return torch.from_numpy(wanted), float(abs(rounded - wanted).max(initial=0))


def check(out, call):
    wanted, error = reference(call)
    assert out.dtype == call["x"].dtype and out.shape == wanted.shape
    step = torch.finfo(out.dtype).eps * (16 if out.dtype == torch.float32 else 1)
    bound = 2 * error + step * (1 + wanted.abs().amax().item())
    assert ((out.double() - wanted).abs() <= bound).all()  # False for NaN


def layer(x, gate_up, down, router):
    ids, weights = route(x @ router.T, 2, renormalise=True)
    return moe(x * 2, gate_up, down, ids, weights) + 1


def layer_tensors(seed=1, tokens=9):
    call = draw(seed, tokens=tokens)
    router = torch.randn(5, 24, generator=torch.Generator().manual_seed(seed))
    return call["x"], call["gate_up"], call["down"], router


@pytest.fixture(params=["eager", "aot_eager", "inductor"])
def compiled(request):
    """Compiles a function whole; a break in its graph is an error."""
    if request.param == "inductor":
        pytest.importorskip("torch._inductor")
    torch.compiler.reset()
    return lambda function, **more: torch.compile(function, fullgraph=True, backend=request.param,
                                                  **more)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_as_the_reference(dtype):
    call = draw(dtype=dtype, tokens=30)
    out = moe(**call)
    check(out, call)
    room = torch.full_like(out, torch.nan)
    assert moe(**call, out=room) is room and torch.equal(room, out)
    call["weights"] = call["weights"].to(dtype)
    check(moe(**call), call)


@pytest.mark.parametrize("activation", moe_support.ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_options(dtype, activation):
    call = with_more(draw(dtype=dtype, tokens=30)) | {"activation": activation}
    out = moe(**call)
    check(out, call)
    call |= {name: transposed(call[name]) for name in ("gate_up", "down")}
    assert not call["gate_up"].is_contiguous()
    check(moe(**call), call)


def test_as_numpys():
    call = draw()
    wanted = moe(**{name: each.numpy() for name, each in call.items()})
    assert torch.equal(moe(**call), torch.from_numpy(wanted))
    logits = torch.randn(7, 12)
    for got, each in zip(route(logits, 3), route(logits.numpy(), 3)):
        assert torch.equal(got, torch.from_numpy(each))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_routed(dtype):
    logits = torch.randn(40, 12, generator=torch.Generator().manual_seed(1)).to(dtype)
    ids, weights = route(logits, 4)
    assert ids.dtype == torch.int32 and weights.dtype == torch.float32
    wanted, _ = logits.float().softmax(1).topk(4)
    torch.testing.assert_close(weights, wanted)
    torch.testing.assert_close(logits.float().softmax(1).gather(1, ids.long()), wanted)
    for element in (torch.int64, "int64"):
        wide, _ = route(logits, 4, id_dtype=element)
        assert wide.dtype == torch.int64 and torch.equal(wide, ids.long())
    room, mass = torch.empty(40, 4, dtype=torch.int64), torch.empty(40, 4)
    got = route(logits, 4, ids=room, weights=mass)
    assert got[0] is room and got[1] is mass
    assert torch.equal(room, wide) and torch.equal(mass, weights)
    with pytest.raises(ValueError, match="^id_dtype: expected int32 or int64"):
        route(logits, 4, id_dtype=torch.float32)


def test_strided_tensors():
    call = draw()
    wanted = moe(**call)
    for name in ("x", "gate_up", "down"):
        wide = torch.full((*call[name].shape[:-1], call[name].shape[-1] + 8), torch.nan)
        wide[..., :-8] = call[name]
        apart = {**call, name: wide[..., :-8]}
        assert not apart[name].is_contiguous()
        got = moe(**apart)
        assert got.is_contiguous() and torch.equal(got, wanted)
    with pytest.raises(ValueError, match="^x: expected a contiguous last dimension"):
        moe(**{**call, "x": call["x"].T.contiguous().T})
    with pytest.raises(ValueError, match="^ids: expected a contiguous"):
        moe(**{**call, "ids": call["ids"].T.contiguous().T})


def test_steps_have_the_bits_of_one_call():
    call = draw(tokens=40)
    slots = torch.full((5,), -1, dtype=torch.int32)
    size = penstock.moe_workspace_bytes(call["x"], call["gate_up"], call["ids"], slots)
    more = {"slots": slots, "out": torch.full_like(call["x"], torch.nan),
            "workspace": torch.full((size,), 255, dtype=torch.uint8)}
    room = {name: torch.empty_like(call[name][:1]) for name in ("gate_up", "down")}
    penstock.moe_plan(**{**call, **room, **more})
    for expert in range(5):
        slots.fill_(-1)[expert] = 0
        for name, each in room.items():
            each.copy_(call[name][expert:expert + 1])
        penstock.moe_experts(**{**call, **room, **more})
    got = penstock.moe_combine(**{**call, **room, **more})
    assert got is more["out"] and torch.equal(got, moe(**call))


class TestGradients:
    @pytest.mark.parametrize("name", ["x", "gate_up", "down", "weights", "gate_up_bias", "down_bias",
                                      "shared_gate_up", "shared_down", "shared_weights"])
    def test_are_refused(self, name):
        call = with_more(draw())
        wanted = moe(**call)
        call[name] = torch.nn.Parameter(call[name])
        says = f"moe: {name} requires a gradient, but moe has no backward; call it under torch.no_grad"
        with pytest.raises(RuntimeError, match=says) as raised:
            moe(**call)
        assert isinstance(raised.value, penstock.Unsupported)
        with torch.no_grad():
            assert torch.equal(moe(**call), wanted)
        with torch.inference_mode():
            assert torch.equal(moe(**call), wanted)

    def test_of_route_are_refused(self):
        logits = torch.randn(3, 8, requires_grad=True)
        with pytest.raises(penstock.Unsupported, match="route: logits requires a gradient, but route"):
            route(logits, 2)
        bias = torch.nn.Parameter(torch.zeros(8))
        with pytest.raises(penstock.Unsupported, match="route: bias requires a gradient"):
            route(logits.detach(), 2, scoring="sigmoid", bias=bias)
        with torch.no_grad():
            route(logits, 2, scoring="sigmoid", bias=bias)

    def test_of_steps_are_refused(self):
        call = draw()
        call["out"] = torch.empty_like(call["x"])
        call["workspace"] = torch.empty(
            penstock.moe_workspace_bytes(call["x"], call["gate_up"], call["ids"]), dtype=torch.uint8)
        call["x"].requires_grad_()
        for step in (penstock.moe_plan, penstock.moe_experts, penstock.moe_combine):
            with pytest.raises(penstock.Unsupported, match=f"{step.__name__}: x requires a gradient"):
                step(**call)

    def test_forwards_are_refused(self):
        call = draw()
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(call["x"], torch.ones_like(call["x"]))
            with pytest.raises(penstock.Unsupported, match="moe has no backward"):
                moe(**{**call, "x": dual})
            check(moe(**call), call)

    def test_of_the_operators_are_refused(self):
        call = draw()
        moe(**call)
        call["x"].requires_grad_()
        out = torch.ops.penstock.moe(*call.values(), *[None] * 6, *OPTIONS)
        with pytest.raises(penstock.Unsupported, match="moe has no backward"):
            out.sum().backward()

    def test_autograd_sees_what_is_written(self):
        call = draw()
        room = torch.ones_like(call["x"])
        kept = (room * torch.ones(24, requires_grad=True)).sum()
        moe(**call, out=room)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            kept.backward()
        with pytest.raises(ValueError, match="^out: expected a tensor that does not require a grad"):
            moe(**call, out=room.requires_grad_())


class TestCompiled:
    def test_whole(self, compiled):
        tensors = layer_tensors()
        torch.testing.assert_close(compiled(layer)(*tensors), layer(*tensors))

    def test_with_parameters(self, compiled):
        x, *parts = layer_tensors()
        parts = [torch.nn.Parameter(each) for each in parts]
        with torch.no_grad():
            torch.testing.assert_close(compiled(layer)(x, *parts), layer(x, *parts))

    def test_into_given_tensors(self, compiled):
        def function(logits, x, gate_up, down, ids, weights, out, workspace):
            route(logits, 2, ids=ids, weights=weights)
            moe(x, gate_up, down, ids, weights, out=out, workspace=workspace)
            return out * 2

        call, logits = draw(), torch.randn(9, 5)
        ids, weights = torch.zeros(9, 2, dtype=torch.int32), torch.zeros(9, 2)
        out = torch.zeros_like(call["x"])
        size = penstock.moe_workspace_bytes(call["x"], call["gate_up"], ids)
        workspace = torch.zeros(size, dtype=torch.uint8)
        parts = call["x"], call["gate_up"], call["down"]
        got = compiled(function)(logits, *parts, ids, weights, out, workspace)
        wanted_ids, wanted = route(logits, 2)
        assert torch.equal(ids, wanted_ids) and torch.equal(weights, wanted)
        assert torch.equal(out, moe(*parts, ids, weights)) and torch.equal(got, out * 2)

    def test_with_options(self, compiled):
        def function(call):
            return moe(**call, activation="clamped_swiglu", limit=1.5) + 1

        call = with_more(draw())
        call |= {name: transposed(call[name]) for name in ("gate_up", "down")}
        with torch.no_grad():
            got = compiled(function)({name: torch.nn.Parameter(each) if each.is_floating_point()
                                      else each for name, each in call.items()})
        torch.testing.assert_close(got, function(call))

    def test_in_steps(self, compiled):
        def function(call):
            penstock.moe_plan(**call)
            penstock.moe_experts(**call)
            return penstock.moe_combine(**call) + 1

        call = draw()
        size = penstock.moe_workspace_bytes(call["x"], call["gate_up"], call["ids"])
        more = {"out": torch.zeros_like(call["x"]), "workspace": torch.zeros(size, dtype=torch.uint8)}
        assert torch.equal(compiled(function)({**call, **more}), moe(**call) + 1)

    def test_for_any_number_of_tokens(self, compiled):
        function = compiled(layer, dynamic=True)
        for tokens in (3, 5, 8):
            tensors = layer_tensors(tokens=tokens)
            torch.testing.assert_close(function(*tensors), layer(*tensors))

    def test_before_any_other_call(self, python):
        python("""
            import torch
            import penstock

            def layer(logits, x, gate_up, down):
                return penstock.moe(x, gate_up, down, *penstock.route(logits, 2))

            parts = torch.randn(3, 4), torch.randn(3, 8), torch.randn(4, 16, 8), torch.randn(4, 8, 8)
            whole = torch.compile(layer, fullgraph=True, backend="eager")
            assert torch.equal(whole(*parts), layer(*parts))
        """)


def test_the_operators_keep_torchs_rules():
    call, check = draw(), torch.library.opcheck
    logits, bias = torch.randn(9, 12), torch.zeros(12)
    ids, weights = route(logits, 3)
    options = "sigmoid", bias, 4, 2, True, 2.0
    check(torch.ops.penstock.route.default, (logits, 3, *options, torch.int64))
    check(torch.ops.penstock.route_out.default, (logits, 3, ids, weights, *options))
    moe(**call)
    slots = torch.arange(5, dtype=torch.int32)
    arguments = (*call.values(), *[None] * 5, slots, *OPTIONS)
    more = tuple(with_more(call).values())
    out = torch.zeros_like(call["x"])
    workspace = torch.zeros(penstock.moe_workspace_bytes(call["x"], call["gate_up"], call["ids"]),
                            dtype=torch.uint8)
    operators = torch.ops.penstock
    check(operators.moe.default, arguments)
    check(operators.moe.default, (*more, None, *OPTIONS))
    check(operators.moe_out.default, (*arguments, out, None))
    for step in (operators.moe_plan, operators.moe_experts, operators.moe_combine):
        check(step.default, (*arguments, out, workspace))


def test_shapes_without_data():
    call = {name: each.to("meta") for name, each in draw().items()}
    out = moe(**call)
    assert out.is_meta and out.shape == (9, 24)
    ids, weights = route(torch.empty(9, 5, device="meta"), 2)
    assert ids.is_meta and ids.shape == weights.shape == (9, 2) and ids.dtype == torch.int32


@pytest.mark.parametrize("change, says", [
    ({"gate_up": lambda each: each.numpy()},
     "^gate_up: expected a torch tensor, as x is one, given ndarray"),
    ({"ids": lambda each: each.tolist()}, "^ids: expected a torch tensor, .*given list"),
    ({"gate_up": lambda each: each.half()}, "^gate_up: expected .*f32, the type of x"),
    ({"down": lambda each: each.to_sparse()}, "^down: expected an array that its library shares"),
    ({"ids": lambda each: each.short()}, "^ids: expected .*given i16"),
    ({"weights": lambda each: each.double()}, "^weights: expected .*given f64"),
    ({"slots": lambda _: torch.arange(5)}, "^slots: expected .*given i64"),
    ({"down_bias": lambda _: [1]}, "^down_bias: expected a torch tensor, .*given list"),
    ({"gate_up_bias": lambda _: torch.zeros(5, 31)}, "^gate_up_bias: "),
    ({"workspace": lambda _: torch.empty(8, dtype=torch.uint8)}, "^workspace: expected .* bytes"),
])
def test_errors_name_the_argument(change, says):
    call = draw()
    for name, to in change.items():
        call[name] = to(call.get(name))
    with pytest.raises(ValueError, match=says):
        moe(**call)


def test_with_a_torch_that_has_no_functions_of_c(python):
    python("""
        import torch
        if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            del torch.Tensor.__dlpack_c_exchange_api__
        import penstock
        parts = [torch.nn.Parameter(torch.randn(*shape)) for shape in ((3, 8), (4, 16, 8), (4, 8, 8))]
        with torch.no_grad():
            ids, weights = penstock.route(torch.nn.Parameter(torch.randn(3, 4)), 2)
            out = penstock.moe(*parts, ids, weights)
        wanted = penstock.moe(*(each.detach().numpy() for each in (*parts, ids, weights)))
        assert torch.equal(out, torch.from_numpy(wanted))
    """)


def test_importing_torch_first_or_last_is_the_same(python):
    python("""
        import numpy, penstock, sys
        logits = numpy.eye(4, dtype=numpy.float32)
        ids, _ = penstock.route(logits, 1)
        assert "torch" not in sys.modules
        import torch
        assert torch.equal(penstock.route(torch.from_numpy(logits), 1)[0], torch.from_numpy(ids))
    """)
