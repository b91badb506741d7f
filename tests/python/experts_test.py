"""ExpertStore and StreamedExperts with NumPy, on the CPU. experts_torch_test.py has torch and GPUs."""

import gc
import math
import threading

import numpy as np
import pytest

import experts_support
import moe_support
import penstock
from experts_support import bits_of, draw_tokens, draw_weights, fill
from penstock import ExpertStore, InvalidArgument, StreamedExperts

SHAPE = {"layers": 3, "experts": 5, "hidden": 24, "width": 16}


def a_store(dtype="f32", **changes):
    return ExpertStore(**{**SHAPE, "dtype": dtype, "device": "cpu", **changes})


def filled(seed=1, dtype="f32", bias=False, **changes):
    """A store, and its weights per layer."""
    shape = {**SHAPE, **{name: changes.pop(name) for name in list(changes) if name in SHAPE}}
    weights = draw_weights(seed, bias=bias, **shape)
    return fill(a_store(dtype, bias=bias, **shape, **changes), weights), weights


class TestStore:
    @pytest.mark.parametrize("bias", [False, True])
    @pytest.mark.parametrize("transposed", [False, True])
    @pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
    def test_keeps_what_was_written(self, dtype, transposed, bias):
        store, weights = filled(2, dtype, bias, transposed=transposed)
        for layer, drawn in enumerate(weights):
            for part, values in drawn.items():
                for expert, one in enumerate(bits_of(values, dtype)):
                    view = getattr(store, part)(layer, expert)
                    assert view.dtype == experts_support.BITS[dtype]
                    np.testing.assert_array_equal(view, one)

    def test_transposed_weights_have_contiguous_columns(self):
        store = a_store(transposed=True)
        for view in (store.gate_up(1, 2), store.down(1, 2)):
            assert view.T.flags.c_contiguous and not view.flags.c_contiguous

    def test_size(self):
        """No more than 5 % above the weights, for experts of a common size."""
        shape = {"layers": 1, "experts": 2, "hidden": 2048, "width": 768}
        store = a_store("bf16", **shape)
        weights = 2 * 3 * 2048 * 768 * 2
        assert weights <= store.nbytes <= 1.05 * weights

    def test_a_view_keeps_the_memory(self):
        store, weights = filled()
        view = store.down(2, 4)
        del store
        gc.collect()
        np.testing.assert_array_equal(view, weights[2]["down"][4])

    @pytest.mark.parametrize("name, value, says", [
        ("layers", 0, "layers: expected from 1"), ("layers", -1, "layers: expected from 1"),
        ("experts", 0, "experts: expected from 1 to 1024, given 0"), ("experts", 1025, "given 1025"),
        ("hidden", 12, "hidden: expected a multiple of 8"), ("hidden", 0, "hidden"),
        ("width", 4, "width: expected a multiple of 8"), ("width", 1 << 40, "width"),
        ("dtype", "f64", "dtype: expected f32, f16 or bf16, given 'f64'"),
        ("layout", "mixed", "layout: expected 'concatenated' or 'interleaved', given 'mixed'"),
        ("device", "gpu", "device"),
    ])
    def test_refuses(self, name, value, says):
        with pytest.raises(InvalidArgument, match=says):
            a_store(**{name: value})

    def test_refuses_sizes_that_overflow(self):
        with pytest.raises((InvalidArgument, penstock.OutOfMemory)):
            a_store(layers=1 << 16, experts=1024, hidden=1 << 20, width=1 << 19)

    def test_refuses_views_of_what_is_not_there(self):
        store = a_store()
        with pytest.raises(InvalidArgument, match="layer: expected from 0 to 2, given 3"):
            store.gate_up(3, 0)
        with pytest.raises(InvalidArgument, match="expert: expected from 0 to 4, given -1"):
            store.down(0, -1)
        with pytest.raises(InvalidArgument, match="bias: expected True when the store is made"):
            store.down_bias(0, 0)
        with pytest.raises(InvalidArgument, match="like: expected 'numpy' or 'torch', given 'jax'"):
            store.down(0, 0, like="jax")

    def test_least_bytes(self):
        store = a_store()
        assert store.least_bytes(pinned=3) > store.least_bytes() > 0
        assert store.least_bytes(calls_in_flight=65) > store.least_bytes()
        with pytest.raises(InvalidArgument, match="pinned: expected 0 or more, given -1"):
            store.least_bytes(pinned=-1)


@pytest.mark.parametrize("seed", range(12))
def test_has_the_bits_of_moe(seed):
    rng = np.random.default_rng(seed)
    shape = {"layers": int(rng.integers(1, 4)), "experts": int(rng.integers(2, 20)),
             "hidden": 8 * int(rng.integers(1, 9)), "width": 8 * int(rng.integers(1, 9))}
    dtype, bias = rng.choice(["f32", "f16"]), bool(rng.integers(2))
    layout = str(rng.choice(["concatenated", "interleaved"]))
    store, weights = filled(seed, str(dtype), bias, layout=layout,
                            transposed=bool(rng.integers(2)), **shape)
    element = experts_support.BITS[str(dtype)]
    options = {"activation": str(rng.choice(moe_support.ACTIVATIONS)), "alpha": 1.5, "limit": 2.0}
    with StreamedExperts(store, device="cpu") as experts:
        for layer, drawn in enumerate(weights):
            x, ids, w = draw_tokens(seed + layer, int(rng.choice([0, 1, 17])), 2, shape["experts"],
                                    shape["hidden"], element)
            drawn = {part: bits_of(each, str(dtype)) for part, each in drawn.items()}
            shared = moe_support.more({"x": x, "gate_up": drawn["gate_up"]}, seed, biases=False)
            out = np.full_like(x, np.nan)
            assert experts.forward(layer, x, ids, w, out, **options, **shared) is out
            wanted = penstock.moe(x, ids=ids, weights=w, layout=layout, **drawn, **options, **shared)
            np.testing.assert_allclose(out.astype("d"), wanted.astype("d"), rtol=2e-2, atol=2e-2)
            if not store.transposed:  # otherwise the CPU adds up in another order
                np.testing.assert_array_equal(out, wanted)


def test_against_the_reference():
    store, weights = filled(3)
    x, ids, w = draw_tokens(4)
    with StreamedExperts(store, device="cpu") as experts:
        out = experts.forward(1, x, ids, w)
    wanted = moe_support.reference(x, weights[1]["gate_up"], weights[1]["down"], ids, w)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)


def test_threads_may_call_at_once():
    store, _ = filled(5, hidden=64, width=64)
    experts = StreamedExperts(store, device="cpu")
    calls = [draw_tokens(seed, 33, hidden=64) for seed in range(6)]
    wanted = [experts.forward(seed % 3, *call) for seed, call in enumerate(calls)]
    failed = []

    def work(seed):
        for _ in range(20):
            if not np.array_equal(experts.forward(seed % 3, *calls[seed]), wanted[seed]):
                failed.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and experts.statistics.calls == 126


def test_statistics_on_the_cpu():
    store, _ = filled()
    experts = StreamedExperts(store, device="cpu", records=4)
    assert math.isnan(experts.statistics.hit_rate)
    for _ in range(3):
        experts.forward(0, *draw_tokens())
    experts.prefetch(1, [0, 4])
    experts.prefetch(1, np.array([[2, 3]]))
    experts.clear()
    experts.check()
    experts.synchronize()
    assert experts.statistics.calls == 3 and experts.statistics.bytes == 0
    assert (experts.slots, experts.device_bytes, experts.records) == (0, 0, [])
    assert repr(experts) == "<penstock.StreamedExperts of 3 layers on 'cpu'>"
    assert penstock.ExpertStatistics(1, 4, 3, 0, 1, 0, 0, 0, 0, 0, 0).hit_rate == 0.75


def test_closed():
    store, _ = filled()
    with StreamedExperts(store, device="cpu") as experts:
        experts.forward(0, *draw_tokens())
    experts.close()
    with pytest.raises(penstock.ExpertsClosed, match="the experts are closed") as caught:
        experts.forward(0, *draw_tokens())
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, penstock.Error)
    assert store.down(0, 0).shape == (24, 16)


def test_keeps_its_store():
    store, weights = filled()
    experts = StreamedExperts(store, device="cpu")
    x, ids, w = draw_tokens()
    wanted = experts.forward(2, x, ids, w)
    del store
    gc.collect()
    np.testing.assert_array_equal(experts.forward(2, x, ids, w), wanted)


class TestRefuses:
    @pytest.mark.parametrize("options, says", [
        ({"policy": "random"}, "policy: expected 'frequency' or 'lru', given 'random'"),
        ({"prefetch": "next"}, "prefetch: expected 'none' or 'previous', given 'next'"),
        ({"pinned": [(3, 0)]}, r"pinned: expected layers below 3 and experts below 5, given \(3, 0\)"),
        ({"pinned": [(0, -1)]}, "pinned"), ({"pinned": [3]}, "pinned: expected pairs"),
        ({"pinned": ["01"]}, "pinned: expected pairs"),
        ({"calls_in_flight": 0}, "calls_in_flight: expected at least 1, given 0"),
        ({"calls_in_flight": -1}, "calls_in_flight: expected 0 or more"),
        ({"records": -1}, "records: expected 0 or more"),
        ({"device_bytes": "many"}, "device_bytes"), ({"device_bytes": -1}, "device_bytes"),
        ({"device_bytes": 1.5}, "device_bytes: expected a number of bytes, or text such as"),
        ({"device_bytes": True}, "device_bytes"), ({"device": 3}, "device"),
        ({"host_experts": "all"}, "host_experts: expected 'none', 'balanced' or 'fixed', given 'all'"),
        ({"host_experts": "balanced"}, "host_experts: expected none on the CPU, .*, given balanced"),
        ({"host_experts": "fixed", "host_share": 0.5}, "host_experts"),
        ({"host_share": 0.5}, "host_share: expected 0, because host_experts is not fixed, given 0.5"),
        ({"host_share": "half"}, "host_share: expected a number above 0 and at most 1"),
        ({"host_threads": 3}, "host_threads: expected 0, because host_experts is none, given 3"),
        ({"host_threads": -1}, "host_threads: expected 0 or more"),
    ])
    def test_options(self, options, says):
        with pytest.raises(InvalidArgument, match=says):
            StreamedExperts(a_store(), **{"device": "cpu", **options})

    def test_another_store(self):
        with pytest.raises(InvalidArgument, match="store: expected an ExpertStore, a CompressedExpertStore or a DiskExpertStore"):
            StreamedExperts({}, device="cpu")

    @pytest.mark.parametrize("change, says", [
        ({"layer": 3}, "layer: expected from 0 to 2, given 3"), ({"layer": -1}, "layer"),
        ({"x": np.zeros((9, 16), "f")}, "x"), ({"x": np.zeros((9, 24))}, "x"),
        ({"x": np.zeros((9, 24), "f2")}, "dtype|type"), ({"x": None}, "x"),
        ({"ids": np.zeros((8, 2), "i4")}, "ids"), ({"ids": np.zeros((9, 2), "f")}, "ids"),
        ({"ids": np.zeros((9, 6), "i4")}, "ids"), ({"weights": np.zeros((9, 3), "f")}, "weights"),
        ({"out": np.zeros((9, 16), "f")}, "out"), ({"activation": "relu"}, "activation"),
        ({"kernel": "fast"}, "kernel"), ({"shared_down": np.zeros((24, 8), "f")}, "shared"),
        ({"ids": np.full((9, 2), -1, "i4"), "check": True}, "ids"),
    ])
    def test_arguments_of_forward(self, change, says):
        store, _ = filled()
        experts = StreamedExperts(store, device="cpu")
        x, ids, weights = draw_tokens()
        call = {"layer": 0, "x": x, "ids": ids, "weights": weights}
        wanted = experts.forward(**call)
        with pytest.raises((InvalidArgument, TypeError), match=says):
            experts.forward(**{**call, **change})
        np.testing.assert_array_equal(experts.forward(**call), wanted)

    def test_arguments_of_prefetch(self):
        experts = StreamedExperts(a_store(), device="cpu")
        for layer, ids, says in ((3, [0], "layer"), (0, [5], "experts: expected experts from 0 to 4"),
                                 (0, [-1], "experts"), (0, 3, "experts: expected numbers"),
                                 (0, ["a"], "experts: expected numbers")):
            with pytest.raises(InvalidArgument, match=says):
                experts.prefetch(layer, ids)


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
import penstock
from experts_support import draw_tokens, draw_weights, fill
shape = {{"layers": 2, "experts": 8, "hidden": 128, "width": 128}}
store = fill(penstock.ExpertStore(**shape, dtype="f32", device="cpu"), draw_weights(1, **shape))
experts = penstock.StreamedExperts(store, device="cpu")
call = draw_tokens(1, 512, 2, 8, 128)
"""


@pytest.fixture
def program():
    return PROGRAM.format(folder=__file__.rpartition("/")[0])


def test_ctrl_c_leaves_it_usable(interrupted, program):
    assert interrupted(program + """
wanted = experts.forward(0, *call)
try:
    print("ready", flush=True)
    while True:
        experts.forward(1, *call)
except KeyboardInterrupt:
    pass
assert np.array_equal(experts.forward(0, *call), wanted)
experts.close()
print("usable")
""") == "usable\n"


def test_nothing_is_left_behind_at_exit(python, program):
    assert python(program + "experts.forward(0, *call)").stderr == ""


def test_a_forked_child(python, program):
    """It cannot use the experts, and does not wait for their thread when it drops them."""
    assert python(program + """
import os
experts.forward(0, *call)
child = os.fork()
if child == 0:
    try:
        experts.forward(0, *call)
    except penstock.Unsupported:
        del experts, store
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
experts.forward(0, *call)
print("done")
""").stdout == "done\n"
