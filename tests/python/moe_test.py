"""moe() and its steps on the CPU, with NumPy arrays, against a reference in f64.

gpu_moe_test.py has a GPU, moe_torch_test.py has torch, and route_test.py has route().
"""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import penstock
from moe_support import ACTIVATIONS, draw, interleaved, more, reference
from penstock import moe

SHAPES = {"tokens": st.integers(0, 20), "choices": st.integers(1, 4), "experts": st.integers(4, 9),
          "hidden": st.sampled_from([8, 24, 40]), "width": st.sampled_from([8, 16, 72])}


def check(out, call, without=()):
    """At most twice as far from the exact result as one with the same roundings, and a rounding."""
    dtype = call["x"].dtype
    wanted = reference(**call, without=without)
    rounded = reference(**call, without=without,
                        rounded=lambda each: each.astype(dtype).astype(np.float64))
    # Products of f32 are accumulated in f32, which the reference does not do.
    step = np.finfo(dtype).eps * (16 if dtype == np.float32 else 1)
    bound = 2 * abs(rounded - wanted).max(initial=0) + step * (1 + abs(wanted).max(initial=0))
    assert out.shape == wanted.shape and out.dtype == dtype
    assert (abs(out - wanted) <= bound).all()  # False for NaN


def workspace_of(call, **more):
    size = penstock.moe_workspace_bytes(call["x"], call["gate_up"], call["ids"], **more)
    return np.full(size, 0xFF, np.uint8)  # NaN, and indices that are out of range


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32), dtype=st.sampled_from([np.float32, np.float16]),
                  **SHAPES)
def test_as_the_reference(seed, dtype, **shapes):
    call = draw(seed, dtype=dtype, **shapes)
    room = np.full_like(call["x"], np.nan)
    out = moe(**call, out=room, workspace=workspace_of(call))
    assert out is room
    check(out, call)
    assert np.array_equal(moe(**call), out)
    assert np.array_equal(moe(**call, batch_invariant=True, check=True), out)
    call["gate_up"] = interleaved(call["gate_up"])
    assert np.array_equal(moe(**call, layout="interleaved"), out)


@pytest.mark.parametrize("kernel", ["sequential", "large", "decode", "portable"])
def test_kernels_of_a_gpu_are_ignored(kernel):
    call = draw()
    assert np.array_equal(moe(**call, kernel=kernel), moe(**call))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_weights_may_be_f16(dtype):
    call = draw(dtype=dtype)
    call["weights"] = call["weights"].astype(np.float16)
    check(moe(**call), call)


def test_arrays_of_penstock_have_bf16():
    call = draw()
    there, here = {}, {}
    for name, each in call.items():
        if name in ("x", "gate_up", "down"):
            bits = (each.view(np.uint32) >> 16).astype(np.uint16)  # rounded towards zero
            there[name] = penstock.empty(each.shape, "bf16", device="cpu")
            penstock.copy(there[name], bits)
            here[name] = (bits.astype(np.uint32) << 16).view(np.float32)
        else:
            there[name] = here[name] = each
    out = moe(**there)
    assert isinstance(out, penstock.Array) and out.dtype == "bf16"
    bits = np.empty(out.shape, np.uint16)
    penstock.copy(bits, out)
    got, wanted = (bits.astype(np.uint32) << 16).view(np.float32), reference(**here)
    assert (abs(got - wanted) <= 2**-7 * abs(wanted).max()).all()


def test_rows_may_be_apart():
    call = draw()
    wanted = moe(**call)
    for name in ("x", "gate_up", "down"):
        wide = np.full((*call[name].shape[:-1], call[name].shape[-1] + 8), np.nan, np.float32)
        wide[..., :-8] = call[name]
        call[name] = wide[..., :-8]
    room = np.full((9, 32), 7, np.float32)
    assert np.array_equal(moe(**call, out=room[:, :24]), wanted)
    assert (room[:, 24:] == 7).all()


def test_no_token_depends_on_the_others():
    call = draw(tokens=30)
    whole = moe(**call, batch_invariant=True)
    for part in (slice(0, 1), slice(3, 17), slice(29, 30)):
        some = {name: each[part] if name in ("x", "ids", "weights") else each
                for name, each in call.items()}
        assert np.array_equal(moe(**some, batch_invariant=True), whole[part])


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32), dtype=st.sampled_from([np.float32, np.float16]),
                  biases=st.booleans(), shared=st.sampled_from([0, 8, 40]), weighted=st.booleans(),
                  activation=st.sampled_from(ACTIVATIONS), alpha=st.sampled_from([1.702, 0.5]),
                  limit=st.sampled_from([7.0, 0.5]), **SHAPES)
def test_options(seed, dtype, biases, shared, weighted, activation, alpha, limit, **shapes):
    call = draw(seed, dtype=dtype, **shapes)
    call |= more(call, seed, biases, shared, weighted)
    call |= {"activation": activation, "alpha": alpha, "limit": limit}
    out = moe(**call)
    check(out, call)
    room = workspace_of(call, shared_gate_up=call.get("shared_gate_up"))
    assert np.array_equal(moe(**call, workspace=room), out)
    for name, axis in (("gate_up", 1), ("gate_up_bias", 1), ("shared_gate_up", 0)):
        if name in call:
            call[name] = interleaved(call[name], axis)
    assert np.array_equal(moe(**call, layout="interleaved"), out)


class TestTransposedWeights:
    @pytest.mark.parametrize("which", [("gate_up",), ("down",), ("gate_up", "down")])
    @pytest.mark.parametrize("dtype", [np.float32, np.float16])
    def test_have_the_result_of_the_others(self, dtype, which):
        call = draw(dtype=dtype, tokens=30)
        wanted = moe(**call)
        for name in which:
            call[name] = np.ascontiguousarray(call[name].transpose(0, 2, 1)).transpose(0, 2, 1)
            assert call[name].strides[1] < call[name].strides[2]
        check(moe(**call), call)
        assert np.allclose(moe(**call), wanted, rtol=0, atol=8 * np.finfo(dtype).eps)

    def test_as_gpt_oss_has_them(self):
        call = draw(tokens=30)
        call |= more(call, shared=0) | {"activation": "clamped_swiglu", "layout": "interleaved"}
        for name in ("gate_up", "down"):
            call[name] = np.ascontiguousarray(call[name].transpose(0, 2, 1)).transpose(0, 2, 1)
        check(moe(**call), call)

    def test_of_the_shared_expert(self):
        call = draw()
        call |= more(call)
        for name in ("shared_gate_up", "shared_down"):
            call[name] = np.asfortranarray(call[name])
        check(moe(**call), call)

    def test_of_which_no_dimension_is_contiguous_are_refused(self):
        call = draw()
        call["gate_up"] = call["gate_up"].repeat(2, 1).repeat(2, 2)[:, ::2, ::2]
        with pytest.raises(penstock.InvalidArgument, match="^gate_up: expected .*contiguous"):
            moe(**call)


def test_tokens_without_experts_are_zero():
    call = draw()
    call["ids"][:] = 5
    room = np.full_like(call["x"], np.nan)
    assert not moe(**call, out=room).any()
    call["ids"][:] = -1
    assert not moe(**call, out=room).any()


def test_slots():
    call = draw()
    wanted = moe(**call)
    order = np.array([3, 0, 4, 1, 2])
    slots = np.argsort(order).astype(np.int32)
    moved = {**call, "gate_up": call["gate_up"][order], "down": call["down"][order]}
    assert np.array_equal(moe(**moved, slots=slots), wanted)
    slots[[0, 4]] = -1, 5  # neither is there
    check(moe(**moved, slots=slots), call, without=(0, 4))


class TestSteps:
    def run(self, call, parts, room):
        """Computes the experts in `parts`, each of which fits in `room` slots."""
        slots = np.full(len(call["gate_up"]), -1, np.int32)
        held = {name: np.full_like(call[name][:room], np.nan)
                for name in ("gate_up", "down", "gate_up_bias", "down_bias") if name in call}
        workspace = workspace_of({**call, **held}, slots=slots,
                                 shared_gate_up=call.get("shared_gate_up"))
        call = {**call, "slots": slots, "out": np.full_like(call["x"], np.nan),
                "workspace": workspace}
        penstock.moe_plan(**{**call, **held})
        for part in parts:
            slots[:] = -1
            for slot, expert in enumerate(part):
                slots[expert] = slot
                for name in held:
                    held[name][slot] = call[name][expert]
            penstock.moe_experts(**{**call, **held})
        return penstock.moe_combine(**{**call, **held})

    @pytest.mark.parametrize("parts", [[range(5)], [(4, 1), (2,), (0, 3)], [(i,) for i in range(5)]])
    @pytest.mark.parametrize("dtype", [np.float32, np.float16])
    def test_have_the_bits_of_one_call(self, dtype, parts):
        call = draw(dtype=dtype, tokens=40)
        got = self.run(call, parts, max(map(len, parts)))
        assert np.array_equal(got, moe(**call))

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_have_the_same_options(self, activation):
        call = draw(tokens=40)
        call |= more(call) | {"activation": activation}
        got = self.run(call, [(4, 1), (2,), (0, 3)], 2)
        check(got, call)
        assert np.array_equal(got, moe(**call))

    def test_leave_out_what_is_not_computed(self):
        call = draw(tokens=40)
        check(self.run(call, [(3,), (0,)], 1), call, without=(1, 2, 4))

    def test_need_memory(self):
        call = draw()
        for step in (penstock.moe_plan, penstock.moe_experts, penstock.moe_combine):
            with pytest.raises(TypeError, match="workspace"):
                step(**call, out=np.empty_like(call["x"]))
            with pytest.raises(ValueError, match="^workspace: "):
                step(**call, out=np.empty_like(call["x"]), workspace=None)


def test_a_workspace_may_begin_anywhere():
    call = draw()
    wanted = moe(**call)
    size = penstock.moe_workspace_bytes(call["x"], call["gate_up"], call["ids"])
    for offset in (0, 1, 64, 255):
        room = np.full(size + offset + 1, 0xFF, np.uint8)
        room[-1] = 7
        assert np.array_equal(moe(**call, workspace=room[offset:-1]), wanted)
        assert room[-1] == 7 and (room[:offset] == 0xFF).all()
    with pytest.raises(ValueError, match="^workspace: expected .* bytes or more, given"):
        moe(**call, workspace=np.empty(size - 512, np.uint8))


def test_a_negative_id_is_found_when_asked():
    call = draw()
    call["ids"][4, 1] = -2
    with pytest.raises(ValueError, match=r"^ids: expected .*given -2 at \(t, k\) = \(4, 1\)"):
        moe(**call, check=True)
    check(moe(**call), call)


@pytest.mark.parametrize("change, says", [
    ({"x": lambda x: x[0]}, "^x: expected shape"),
    ({"x": lambda x: x.astype(np.float64)}, "^x: expected .*given f64"),
    ({"x": lambda x: x[:, :20]}, "^x: expected d that is a multiple of 8, given 20"),
    ({"x": lambda x: x.repeat(2, 1)[:, ::2]}, "^x: expected a contiguous last dimension"),
    ({"gate_up": lambda x: x[:, :, :16]}, "^gate_up: "),
    ({"gate_up": lambda x: x.astype(np.float16)}, "^gate_up: expected .*f32, the type of x"),
    ({"gate_up": lambda x: x[:, :31]}, "^gate_up: "),
    ({"down": lambda x: x[:4]}, "^down: "),
    ({"ids": lambda x: x.astype(np.float32)}, "^ids: expected .*given f32"),
    ({"ids": lambda x: x[:4]}, "^ids: "),
    ({"ids": lambda x: np.asfortranarray(x)}, "^ids: expected a contiguous"),
    ({"weights": lambda x: x.astype(np.float64)}, "^weights: expected .*given f64"),
    ({"weights": lambda x: x[:, :1]}, "^weights: "),
    ({"out": lambda _: np.empty((9, 8), np.float32)}, "^out: "),
    ({"out": lambda _: np.empty((9, 24), np.float16)}, "^out: "),
    ({"slots": lambda _: np.zeros(5, np.int64)}, "^slots: expected .*given i64"),
    ({"gate_up_bias": lambda _: np.zeros((5, 16), np.float32)}, "^gate_up_bias: "),
    ({"gate_up_bias": lambda _: np.zeros((5, 32), np.float16)}, "^gate_up_bias: expected .*f32"),
    ({"down_bias": lambda _: np.zeros((4, 24), np.float32)}, "^down_bias: "),
    ({"shared_gate_up": lambda _: np.zeros((32, 24), np.float32)}, "^shared_down: "),
    ({"shared_gate_up": lambda _: np.zeros((32, 16), np.float32),
      "shared_down": lambda _: np.zeros((24, 16), np.float32)}, "^shared_gate_up: "),
    ({"shared_gate_up": lambda _: np.zeros((32, 24), np.float32),
      "shared_down": lambda _: np.zeros((24, 16), np.float32),
      "shared_weights": lambda _: np.zeros(8, np.float32)}, "^shared_weights: "),
    ({"activation": lambda _: "relu"},
     "^activation: expected 'swiglu', .* or 'clamped_swiglu', given 'relu'"),
    ({"layout": lambda _: "sideways"},
     "^layout: expected 'concatenated' or 'interleaved', given 'sideways'"),
    ({"kernel": lambda _: "slow"}, "^kernel: expected 'best', .* or 'portable', given 'slow'"),
])
def test_errors_name_the_argument(change, says):
    call = draw()
    for name, to in change.items():
        call[name] = to(call.get(name))
    with pytest.raises(penstock.InvalidArgument, match=says):
        moe(**call)


def test_results_do_not_overwrite_arguments():
    call = draw()
    with pytest.raises(penstock.InvalidArgument, match="^out: "):
        moe(**call, out=call["x"])
    call["x"].setflags(write=False)
    moe(**call)
    with pytest.raises(penstock.InvalidArgument, match="^out: "):
        moe(**draw(), out=call["x"])


def test_what_is_no_array_is_refused():
    call = draw()
    with pytest.raises(TypeError, match="^gate_up: expected an array"):
        moe(**{**call, "gate_up": 3})
