"""CompressedExpertStore, and StreamedExperts that read one, with NumPy on the CPU."""

import math
import threading

import numpy as np
import pytest

import penstock
from experts_support import bits_of, draw_tokens, draw_weights
from penstock import CompressedExpertStore, InvalidArgument, StreamedExperts, Unsupported

SHAPE = {"layers": 3, "experts": 5, "hidden": 24, "width": 16}


def a_store(**changes):
    return CompressedExpertStore(**{**SHAPE, "device": "cpu", **changes})


def filled(seed=1, bias=False, **changes):
    """A store, and the bits of its weights per layer."""
    shape = {**SHAPE, **{name: changes.pop(name) for name in list(changes) if name in SHAPE}}
    weights = [{part: bits_of(each, "bf16") for part, each in drawn.items()}
               for drawn in draw_weights(seed, bias=bias, **shape)]
    store = a_store(bias=bias, **shape, **changes)
    for layer, drawn in enumerate(weights):
        for expert in range(store.experts):
            store.set(layer, expert, **{part: each[expert] for part, each in drawn.items()})
    return store, weights


def as_bf16(bits):
    """An array of the values, which NumPy does not have."""
    room = penstock.empty(bits.shape, "bf16", device="cpu")
    return penstock.decompress(penstock.compress(bits), out=room)


def bits_in(array):
    return penstock.decompress(penstock.compress(array), shape=array.shape)


def tokens_of(store, seed=1, tokens=9):
    x, ids, weights = draw_tokens(seed, tokens, 2, store.experts, store.hidden)
    return as_bf16(bits_of(x, "bf16")), ids, weights


def values_of(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class TestStore:
    def test_counts_what_is_set(self):
        store, weights = a_store(), draw_weights(1, **SHAPE)
        assert (store.count, store.complete, store.nbytes) == (0, False, 0)
        assert repr(store).endswith("of 3 layers of 5 experts, bf16, 0 set>")
        one = {part: bits_of(each[0], "bf16") for part, each in weights[0].items()}
        for number in range(15):
            assert not store.complete
            before = store.nbytes
            store.set(number // 5, number % 5, **one)
            assert store.count == number + 1 and store.nbytes > before
        assert store.complete

    def test_size(self):
        """No more than 0.69 of the weights, if these are normally distributed."""
        shape = {"layers": 1, "experts": 2, "hidden": 512, "width": 256}
        store, _ = filled(**shape)
        weights = 2 * 3 * 512 * 256 * 2
        assert 0.6 * weights < store.nbytes < 0.69 * weights

    @pytest.mark.parametrize("changes, error, says", [
        ({"dtype": "f32"}, Unsupported, "expected dtype bf16, given f32"),
        ({"dtype": "f16"}, Unsupported, "expected dtype bf16, given f16"),
        ({"hidden": 12}, InvalidArgument, "hidden: expected a multiple of 8"),
        ({"experts": 0}, InvalidArgument, "experts"), ({"layout": "mixed"}, InvalidArgument, "layout"),
    ])
    def test_refuses(self, changes, error, says):
        with pytest.raises(error, match=says):
            a_store(**changes)

    def test_refuses_experts(self):
        store = a_store()
        up, down = np.zeros((32, 24), "u2"), np.zeros((24, 16), "u2")
        for arguments, says in (
                ((3, 0, up, down), "layer: expected from 0 to 2, given 3"),
                ((0, -1, up, down), "expert: expected from 0 to 4, given -1"),
                ((0, 0, up.T, down), r"gate_up: expected a NumPy array of uint16 of shape \(32, 24\)"),
                ((0, 0, up, down.astype("f")), "down: expected a NumPy array of uint16"),
                ((0, 0, up, None), "down: expected a NumPy array .* given NoneType"),
                ((0, 0, up, down, up[:, 0]), "gate_up_bias: expected None"),
        ):
            with pytest.raises(InvalidArgument, match=says):
                store.set(*arguments)
        assert store.count == 0
        store.set(0, 0, up, down)
        with pytest.raises(InvalidArgument, match="expert: expected one of layer 0 that is not set"):
            store.set(0, 0, up, down)
        with pytest.raises(InvalidArgument, match="gate_up_bias: expected a NumPy array"):
            a_store(bias=True).set(0, 0, up, down)

    def test_threads_may_fill_it(self):
        weights = [{part: bits_of(each, "bf16") for part, each in drawn.items()}
                   for drawn in draw_weights(4, **SHAPE)]
        store = a_store()

        def work(expert):
            for layer, drawn in enumerate(weights):
                store.set(layer, expert, drawn["gate_up"][expert], drawn["down"][expert])

        threads = [threading.Thread(target=work, args=(expert,)) for expert in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect_the_bits_of_moe(store, weights)


def expect_the_bits_of_moe(store, weights, **options):
    with StreamedExperts(store, device="cpu", device_bytes=store.least_bytes(), **options) as experts:
        for turn, tokens in enumerate((1, 9, 200, 3, 2, 9)):
            layer = turn % store.layers
            x, ids, w = tokens_of(store, turn, tokens)
            arrays = {part: as_bf16(each) for part, each in weights[layer].items()}
            wanted = penstock.moe(x, ids=ids, weights=w, layout=store.layout, **arrays)
            np.testing.assert_array_equal(bits_in(experts.forward(layer, x, ids, w)), bits_in(wanted))
        experts.synchronize()
        return experts.statistics


@pytest.mark.parametrize("seed", range(6))
def test_has_the_bits_of_moe(seed):
    rng = np.random.default_rng(seed)
    shape = {"layers": int(rng.integers(1, 4)), "experts": int(rng.integers(2, 20)),
             "hidden": 8 * int(rng.integers(1, 9)), "width": 8 * int(rng.integers(1, 9))}
    store, weights = filled(seed, bias=bool(rng.integers(2)),
                            layout=str(rng.choice(["concatenated", "interleaved"])), **shape)
    counts = expect_the_bits_of_moe(store, weights, policy="lru", prefetch="previous")
    assert counts.calls == 6 and counts.failed_calls == 0
    assert counts.needed == counts.hits + counts.late + counts.misses > 0
    assert counts.bytes > 0


def test_transposed_weights():
    store, weights = filled(9, bias=True, transposed=True)
    x, ids, w = tokens_of(store)
    with StreamedExperts(store, device="cpu", device_bytes="1MiB", records=2) as experts:
        assert experts.slots == 15 and 0 < experts.device_bytes <= 1 << 20
        out = experts.forward(1, x, ids, w)
        experts.synchronize()
        assert len(experts.records) == 1
        assert "15 slots" in repr(experts)
    wanted = penstock.moe(values_of(bits_in(x)), ids=ids, weights=w,
                          **{part: values_of(each) for part, each in weights[1].items()})
    np.testing.assert_allclose(values_of(bits_in(out)), wanted, rtol=5e-2, atol=5e-2)


class TestStreamedExperts:
    def test_needs_memory(self):
        store, _ = filled()
        with pytest.raises(InvalidArgument, match="device_bytes: expected a number of bytes"):
            StreamedExperts(store, device="cpu")
        with pytest.raises(InvalidArgument, match="device_bytes: expected at least .* buffers and tables"):
            StreamedExperts(store, device="cpu", device_bytes=store.least_bytes() - 1)
        assert store.least_bytes(pinned=1) > store.least_bytes() > penstock.ExpertStore(
            **SHAPE, device="cpu").least_bytes()

    def test_needs_all_experts(self):
        store = a_store()
        store.set(0, 0, np.zeros((32, 24), "u2"), np.zeros((24, 16), "u2"))
        with pytest.raises(InvalidArgument, match="compressed: expected a store with all 15 experts set, "
                                                  "given one with 1"):
            StreamedExperts(store, device="cpu", device_bytes="1MiB")

    def test_cache(self):
        store, _ = filled()
        x, ids, w = tokens_of(store, tokens=1)
        with StreamedExperts(store, device="cpu", device_bytes="1MiB", pinned=[(2, 1)]) as experts:
            assert math.isnan(experts.statistics.hit_rate)
            experts.prefetch(0, [0, 4])
            experts.forward(0, x, ids, w)
            experts.synchronize()
            before = experts.statistics
            experts.forward(0, x, ids, w)
            experts.synchronize()
            assert experts.statistics.bytes == before.bytes and experts.statistics.hits > before.hits
            experts.clear()
            experts.forward(0, x, ids, w)
            experts.synchronize()
            assert experts.statistics.misses > before.misses
        with pytest.raises(penstock.ExpertsClosed):
            experts.forward(0, x, ids, w)
