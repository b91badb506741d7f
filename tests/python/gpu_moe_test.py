"""route() and moe() on a GPU, against torch in f64 and against the CPU.

All tests but the last need torch.
"""

import random

import numpy as np
import pytest

import moe_support
import penstock
from gpu_support import pinned

if penstock.Device.why_no_gpu():
    pytest.skip(f"no GPU: {penstock.Device.why_no_gpu()}", allow_module_level=True)
CAPABILITY = penstock.Device("cuda").capabilities["compute_capability"]
if CAPABILITY < (8, 0):
    pytest.skip("moe() needs a GPU of compute capability 8.0", allow_module_level=True)

pytestmark = pytest.mark.gpu
needs_hopper = pytest.mark.skipif(CAPABILITY != (9, 0), reason="the kernel needs compute capability 9.0")
LARGE, DECODE = (pytest.param(name, marks=needs_hopper) for name in ("large", "decode"))


@pytest.fixture
def torch(torch):
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


def draw(torch, seed=1, dtype="bfloat16", tokens=150, choices=4, experts=12, hidden=136, width=72,
         empty=(1,), beyond=0.1):
    """The arguments of moe() on the GPU. No token has the experts in `empty`; some ids mean none."""
    make = torch.Generator("cuda").manual_seed(seed)

    def normal(*shape):
        values = torch.randn(*shape, generator=make, device="cuda") * shape[-1]**-0.5
        return values.to(getattr(torch, dtype))

    ids = torch.rand(tokens, experts, generator=make, device="cuda").argsort(1)[:, :choices]
    ids = ids.to(torch.int32 if seed % 2 else torch.int64).contiguous()
    for expert in empty:
        ids[ids == expert] = 0
    ids[torch.rand(ids.shape, generator=make, device="cuda") < beyond] = experts + seed % 7
    return {"x": normal(tokens, hidden) * hidden**0.5, "gate_up": normal(experts, 2 * width, hidden),
            "down": normal(experts, hidden, width), "ids": ids,
            "weights": torch.rand(tokens, choices, generator=make, device="cuda")}


def with_more(torch, call, seed=1, width=40):
    """The call with biases and a shared expert of this width."""
    make = torch.Generator("cuda").manual_seed(seed)

    def normal(*shape, scale=1.0):
        values = torch.randn(*shape, generator=make, device="cuda") * scale
        return values.to(call["x"].dtype)

    (tokens, hidden), (experts, rows, _) = call["x"].shape, call["gate_up"].shape
    return call | {"gate_up_bias": normal(experts, rows), "down_bias": normal(experts, hidden),
                   "shared_gate_up": normal(2 * width, hidden, scale=hidden**-0.5),
                   "shared_down": normal(hidden, width, scale=width**-0.5),
                   "shared_weights": torch.rand(tokens, generator=make, device="cuda")}


def activated(torch, gate, up, activation):
    gelu = torch.nn.functional.gelu
    if activation == "clamped_swiglu":
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return gate * (1.702 * gate).sigmoid() * (up + 1)
    return up * {"swiglu": torch.nn.functional.silu, "geglu": gelu,
                 "geglu_tanh": lambda each: gelu(each, approximate="tanh")}[activation](gate)


def reference(torch, x, gate_up, down, ids, weights, gate_up_bias=None, down_bias=None,
              shared_gate_up=None, shared_down=None, shared_weights=None, activation="swiglu",
              layout="concatenated", rounded=lambda each: each, without=()):
    """The result in f64. `rounded` rounds the input of the down projection and its result; experts
    in `without` are not there."""
    x, weights = x.double(), weights.double()

    def expert(rows, gate_up, down, gate_up_bias=0, down_bias=0):
        both = rows @ gate_up.double().T + gate_up_bias
        gate, up = (both.chunk(2, 1) if layout == "concatenated" else (both[:, ::2], both[:, 1::2]))
        return rounded(rounded(activated(torch, gate, up, activation)) @ down.double().T + down_bias)

    out = torch.zeros_like(x)
    for id in range(len(down)):
        if id in without:
            continue
        tokens, choices = (ids == id).nonzero(as_tuple=True)
        biases = (0 if each is None else each[id].double() for each in (gate_up_bias, down_bias))
        y = expert(x[tokens], gate_up[id], down[id], *biases)
        out.index_put_((tokens,), weights[tokens, choices][:, None] * y, accumulate=True)
    if shared_gate_up is not None:
        weight = 1 if shared_weights is None else shared_weights.double()[:, None]
        out += weight * expert(x, shared_gate_up, shared_down)
    return out


def check(torch, out, call, **more):
    """At most twice as far from the exact result as one with the same roundings, and a rounding."""
    dtype = call["x"].dtype
    assert out.dtype == dtype and out.shape == call["x"].shape
    if out.numel() == 0:
        return
    wanted = reference(torch, **call, **more)
    near = reference(torch, **call, **more, rounded=lambda each: each.to(dtype).double())
    largest = wanted.abs().max().item()
    # Products of f32 are accumulated in f32, which the reference does not do.
    step = torch.finfo(dtype).eps * (16 if dtype == torch.float32 else 1)
    bound = 2 * (near - wanted).abs().max().item() + step * largest
    error = (out.double() - wanted).abs()
    assert (error <= bound).all(), f"{error.max().item()} > {bound}"  # NaN fails, too


def workspace_of(torch, call, slots=None):
    size = penstock.moe_workspace_bytes(call["x"], call["gate_up"], call["ids"], slots,
                                        shared_gate_up=call.get("shared_gate_up"))
    return torch.full((size,), 0xFF, dtype=torch.uint8, device="cuda")


class TestMoe:
    @pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
    @pytest.mark.parametrize("tokens", [0, 1, 2, 63, 64, 65, 129, 193, 1000])
    def test_as_the_reference(self, torch, tokens, dtype):
        call = draw(torch, tokens=tokens, dtype=dtype)
        out = torch.full_like(call["x"], torch.nan)
        got = penstock.moe(**call, out=out, workspace=workspace_of(torch, call))
        assert got is out
        check(torch, out, call)
        assert torch.equal(penstock.moe(**call), out)
        assert torch.equal(penstock.moe(**call, check=True), out)

    @pytest.mark.parametrize("number", range(20))
    def test_any_shape(self, torch, number):
        seed = random.SystemRandom().getrandbits(32)
        choose = random.Random(seed)
        shapes = {"tokens": choose.choice([1, choose.randrange(1, 64), choose.randrange(64, 3000)]),
                  "experts": choose.randrange(1, 130), "hidden": 8 * choose.randrange(1, 80),
                  "width": 8 * choose.randrange(1, 80), "beyond": choose.choice([0, 0.3, 1])}
        shapes["choices"] = choose.randrange(1, min(16, shapes["experts"]) + 1)
        shapes["empty"] = range(1, choose.randrange(1, shapes["experts"] + 1))
        dtype = choose.choice(["bfloat16", "float16"])
        print(f"draw(torch, seed={seed}, dtype={dtype!r}, **{shapes})")
        call = draw(torch, seed, dtype, **shapes)
        out = torch.full_like(call["x"], torch.nan)
        penstock.moe(**call, out=out, workspace=workspace_of(torch, call))
        check(torch, out, call)

    def test_all_tokens_with_one_expert(self, torch):
        call = draw(torch, tokens=700, choices=1)
        call["ids"][:] = 5
        check(torch, penstock.moe(**call), call)

    def test_no_token_with_an_expert(self, torch):
        call = draw(torch)
        call["ids"][:] = 12
        out = torch.full_like(call["x"], torch.nan)
        assert not penstock.moe(**call, out=out).any()

    def test_interleaved_rows_of_gate_and_up(self, torch):
        call = draw(torch)
        wanted = penstock.moe(**call)
        halves = call["gate_up"].reshape(12, 2, 72, 136)
        call["gate_up"] = halves.transpose(1, 2).reshape(12, 144, 136).contiguous()
        got = penstock.moe(**call, layout="interleaved")
        assert torch.equal(got, wanted)

    @pytest.mark.parametrize("element", ["float32", "bfloat16", "float16"])
    def test_types_of_weights(self, torch, element):
        call = draw(torch)
        call["weights"] = call["weights"].to(getattr(torch, element))
        check(torch, penstock.moe(**call), call)

    def test_strided_rows(self, torch):
        call = draw(torch)
        wanted = penstock.moe(**call)
        for name in ("x", "gate_up", "down"):
            shape = call[name].shape
            wide = torch.full((*shape[:-1], shape[-1] + 24), torch.nan, dtype=torch.bfloat16,
                              device="cuda")
            wide[..., 8:-16] = call[name]
            call[name] = wide[..., 8:-16]
        room = torch.full((150, 144), 7, dtype=torch.bfloat16, device="cuda")
        penstock.moe(**call, out=room[:, 8:])
        assert torch.equal(room[:, 8:], wanted) and (room[:, :8] == 7).all()

    def test_the_same_every_time(self, torch):
        call = draw(torch, tokens=1000)
        first = penstock.moe(**call)
        assert all(torch.equal(penstock.moe(**call), first) for _ in range(20))

    def test_no_token_depends_on_the_others(self, torch):
        call = draw(torch, tokens=1000)
        whole = penstock.moe(**call, batch_invariant=True)
        for part in (slice(0, 1), slice(3, 17), slice(100, 400), slice(999, 1000)):
            some = {name: each[part] if name in ("x", "ids", "weights") else each
                    for name, each in call.items()}
            assert torch.equal(penstock.moe(**some, batch_invariant=True), whole[part])

    def test_close_to_the_cpu(self, torch):
        call = draw(torch)
        there = penstock.moe(**call).cpu()
        here = penstock.moe(**{name: each.cpu() for name, each in call.items()})
        torch.testing.assert_close(there, here, rtol=2**-6, atol=2**-6)

    def test_slots(self, torch):
        call = draw(torch)
        wanted = penstock.moe(**call)
        order = torch.randperm(12, device="cuda")
        slots = order.argsort().int()
        moved = {**call, "gate_up": call["gate_up"][order], "down": call["down"][order]}
        assert torch.equal(penstock.moe(**moved, slots=slots), wanted)
        slots[3], slots[7] = -1, 12
        check(torch, penstock.moe(**moved, slots=slots), call, without=(3, 7))

    def test_what_is_wrong_is_found(self, torch):
        call = draw(torch)
        for change, says in [
                ({"x": call["x"].float()}, "^gate_up: expected .*f32, the type of x"),
                ({"ids": call["ids"].cpu()}, "^ids: expected memory of cuda:0"),
                ({"x": call["x"].repeat(1, 2)[:, 1:137]}, "^x: expected .*16 bytes"),
                ({"workspace": torch.empty(100, device="cuda")}, "^workspace: expected .* bytes"),
        ]:
            with pytest.raises(ValueError, match=says):
                penstock.moe(**{**call, **change})
        call["ids"][7, 2] = -1
        with pytest.raises(ValueError, match=r"^ids: .*given -1 at \(t, k\) = \(7, 2\)"):
            penstock.moe(**call, check=True)
        check(torch, penstock.moe(**call), call)


class TestOptions:
    @pytest.mark.parametrize("kernel", ["best", LARGE, DECODE, "portable"])
    @pytest.mark.parametrize("activation", moe_support.ACTIVATIONS)
    @pytest.mark.parametrize("tokens", [1, 3, 150, 700])
    def test_of_every_kernel(self, torch, tokens, activation, kernel):
        call = with_more(torch, draw(torch, tokens=tokens)) | {"activation": activation}
        out = torch.full_like(call["x"], torch.nan)
        penstock.moe(**call, out=out, kernel=kernel)
        check(torch, out, call)

    @pytest.mark.parametrize("kernel", ["best", LARGE, "portable"])
    @pytest.mark.parametrize("tokens", [3, 700])
    def test_as_gpt_oss_has_them(self, torch, tokens, kernel):
        call = with_more(torch, draw(torch, tokens=tokens))
        call |= {name: call[name].mT.contiguous().mT for name in ("gate_up", "down")}
        call |= {"activation": "clamped_swiglu", "layout": "interleaved"}
        check(torch, penstock.moe(**call, kernel=kernel), call)

    @pytest.mark.parametrize("which", [("gate_up",), ("down",), ("shared_gate_up", "shared_down")])
    @pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
    def test_transposed_weights(self, torch, dtype, which):
        call = with_more(torch, draw(torch, dtype=dtype))
        for name in which:
            call[name] = call[name].mT.contiguous().mT
            assert not call[name].is_contiguous()
        check(torch, penstock.moe(**call), call)

    @pytest.mark.parametrize("kernel", ["best", "portable"])
    @pytest.mark.parametrize("tokens", [0, 1, 150, 700])
    def test_f32(self, torch, tokens, kernel):
        call = with_more(torch, draw(torch, tokens=tokens, dtype="float32"))
        check(torch, penstock.moe(**call, kernel=kernel), call)

    @needs_hopper
    def test_kernels_say_what_they_do_not_have(self, torch):
        call = draw(torch)
        transposed = call | {"gate_up": call["gate_up"].mT.contiguous().mT}  # and concatenated
        for kernel, given in [("large", draw(torch, dtype="float32")), ("decode", transposed),
                              ("sequential", with_more(torch, call))]:
            with pytest.raises(penstock.InvalidArgument, match="^kernel: expected .*(portable|another)"):
                penstock.moe(**given, kernel=kernel)

    @pytest.mark.parametrize("compile", [False, True])
    def test_captured(self, torch, compile):
        call = with_more(torch, draw(torch))
        function = torch.compile(penstock.moe, fullgraph=True) if compile else penstock.moe
        with torch.no_grad():
            function(**call)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = function(**call)
        call["x"].copy_(draw(torch, 2)["x"])
        call["ids"].copy_(draw(torch, 3)["ids"])
        graph.replay()
        assert torch.equal(out, penstock.moe(**call))


class TestSteps:
    @pytest.mark.parametrize("room", [1, 5, 12])
    @pytest.mark.parametrize("tokens", [1, 150, 1000])
    def test_have_the_bits_of_one_call(self, torch, tokens, room):
        call = draw(torch, tokens=tokens)
        got = self.run(torch, call, list(range(12)), room)
        assert torch.equal(got, penstock.moe(**call))

    def test_have_the_same_options(self, torch):
        call = with_more(torch, draw(torch)) | {"activation": "geglu"}
        got = self.run(torch, call, list(range(12)), 5)
        check(torch, got, call)
        assert torch.equal(got, penstock.moe(**call))

    def test_leave_out_what_is_not_computed(self, torch):
        call = draw(torch)
        got = self.run(torch, call, [5, 2, 11], 2)
        check(torch, got, call, without=set(range(12)) - {5, 2, 11})

    def run(self, torch, call, experts, room):
        """Computes the experts, `room` at a time, on torch's current stream."""
        held = {name: torch.full_like(call[name][:room], torch.nan)
                for name in ("gate_up", "down", "gate_up_bias", "down_bias") if name in call}
        slots = torch.full((12,), -1, dtype=torch.int32, device="cuda")
        more = {"slots": slots, "out": torch.full_like(call["x"], torch.nan),
                "workspace": workspace_of(torch, {**call, **held}, slots)}
        penstock.moe_plan(**{**call, **held, **more})
        for first in range(0, len(experts), room):
            part = experts[first:first + room]
            slots.fill_(-1)
            slots[part] = torch.arange(len(part), dtype=torch.int32, device="cuda")
            for name, each in held.items():
                each[:len(part)] = call[name][part]
            penstock.moe_experts(**{**call, **held, **more})
        return penstock.moe_combine(**{**call, **held, **more})


class TestStreams:
    def test_torchs_current_stream_is_used(self, torch):
        call = draw(torch)
        wanted, late = penstock.moe(**call), torch.zeros_like(call["x"])
        torch.cuda.synchronize()
        own = torch.cuda.Stream()
        with torch.cuda.stream(own):
            torch.cuda._sleep(50_000_000)
            late.copy_(call["x"])
            out = penstock.moe(**{**call, "x": late})
            assert not own.query()  # nobody waited
        own.synchronize()
        assert torch.equal(out, wanted)

    def test_another_stream_waits_for_torchs(self, torch):
        call = draw(torch)
        wanted, late = penstock.moe(**call), torch.zeros_like(call["x"])
        stream = penstock.Stream("cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(50_000_000)
            late.copy_(call["x"])
            out = penstock.moe(**{**call, "x": late}, stream=stream)
        stream.synchronize()
        assert torch.equal(out, wanted)

    def test_calls_in_flight_have_workspaces_of_their_own(self, torch):
        calls = [draw(torch, seed) for seed in range(8)]
        wanted = [penstock.moe(**call) for call in calls]
        streams = [torch.cuda.Stream() for _ in range(4)]
        torch.cuda.synchronize()
        results = []
        for number, call in enumerate(calls):
            with torch.cuda.stream(streams[number % 4]):
                results.append(penstock.moe(**call))
        torch.cuda.synchronize()
        assert all(map(torch.equal, results, wanted))

    @pytest.mark.parametrize("compile", [False, True])
    def test_captured(self, torch, compile):
        def function(logits, x):
            ids, weights = penstock.route(logits, 3)
            return penstock.moe(x, call["gate_up"], call["down"], ids, weights) * 2

        call = draw(torch)
        fixed = torch.randn(150, 12, device="cuda"), call["x"].clone()
        run = torch.compile(function, fullgraph=True) if compile else function
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run(*fixed)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = run(*fixed)
        for seed in (2, 3):
            fixed[0].copy_(torch.randn(150, 12, device="cuda"))
            fixed[1].copy_(draw(torch, seed)["x"])
            out.fill_(torch.nan)
            graph.replay()
            assert torch.equal(out, function(*fixed))

    def test_steps_captured(self, torch):
        call = draw(torch)
        call |= {"out": torch.empty_like(call["x"]), "workspace": workspace_of(torch, call)}
        graph = torch.cuda.CUDAGraph()
        penstock.moe(**call)
        with torch.cuda.graph(graph):
            penstock.moe_plan(**call)
            penstock.moe_experts(**call)
            penstock.moe_combine(**call)
        call["x"].copy_(draw(torch, 2)["x"])
        call["ids"].copy_(draw(torch, 2)["ids"])
        call["workspace"].fill_(0xFF)
        graph.replay()
        assert torch.equal(call["out"], penstock.moe(**{**call, "out": None, "workspace": None}))

    @pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
    def test_compiled(self, torch, mode):
        def layer(x, gate_up, down, router):
            ids, weights = penstock.route((x @ router.T).float(), 4, renormalise=True)
            return penstock.moe(x, gate_up, down, ids, weights).sin()

        call = draw(torch)
        router = torch.randn(12, 136, device="cuda", dtype=torch.bfloat16)
        tensors = call["x"], call["gate_up"], call["down"], router
        torch.compiler.reset()
        compiled = torch.compile(layer, fullgraph=True, mode=mode)
        wanted = layer(*tensors)
        with torch.no_grad():
            for _ in range(3):
                torch.testing.assert_close(compiled(*tensors), wanted, rtol=2**-6, atol=2**-6)

    def test_gradients_are_refused(self, torch):
        call = draw(torch)
        call["gate_up"] = torch.nn.Parameter(call["gate_up"])
        with pytest.raises(penstock.Unsupported, match="moe: gate_up requires a gradient"):
            penstock.moe(**call)
        with torch.inference_mode():
            check(torch, penstock.moe(**call), call)


class TestRoute:
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
    @pytest.mark.parametrize("scoring", ["softmax_topk", "topk_softmax", "sigmoid"])
    @pytest.mark.parametrize("tokens, experts, k", [(0, 8, 2), (1, 1, 1), (65, 8, 2), (1000, 128, 8),
                                                    (77, 256, 8), (33, 512, 16)])
    def test_has_the_bits_of_the_cpu(self, torch, tokens, experts, k, scoring, dtype):
        make = torch.Generator().manual_seed(tokens)
        logits = torch.randn(tokens, experts, generator=make).to(getattr(torch, dtype))
        if tokens > 1:
            logits[1, :-1], logits[0, ::3], logits[-1] = -torch.inf, torch.nan, 0
        more = {"scoring": scoring, "renormalise": True, "scale": 2.5}
        if scoring == "sigmoid" and experts >= 8:
            more |= {"groups": 4, "top_groups": 2}
            bias = torch.randn(experts, generator=make)
            here = penstock.route(logits, k, bias=bias, **more)
            there = penstock.route(logits.cuda(), k, bias=bias.cuda(), id_dtype=torch.int64, **more)
        else:
            here = penstock.route(logits, k, **more)
            there = penstock.route(logits.cuda(), k, id_dtype=torch.int64, **more)
        assert there[0].dtype == torch.int64 and torch.equal(there[0].cpu(), here[0].long())
        assert torch.equal(there[1].cpu(), here[1])


def test_arrays_of_penstock():
    call = moe_support.draw(tokens=70, hidden=40, width=24, dtype=np.float16)
    wanted = moe_support.reference(**call)
    stream = penstock.Stream("cuda")
    there = {name: penstock.empty(each.shape, each.dtype, memory="device")
             for name, each in call.items()}
    here = {name: pinned(each) for name, each in call.items()}
    for name, room in there.items():
        penstock.copy(room, here[name], stream)
    with pytest.raises(ValueError, match="^stream: expected a stream, as the memory is on a GPU"):
        penstock.moe(**there)
    out = penstock.moe(**there, stream=stream)  # with a workspace of Penstock
    assert out.place == "cuda:0" and out.dtype == "f16"
    back = penstock.empty(wanted.shape, "f16")
    penstock.copy(back, out, stream)
    stream.synchronize()
    assert (abs(back.numpy() - wanted) <= 2e-3 * (1 + abs(wanted).max())).all()
