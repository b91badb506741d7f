"""round_routes() on the CPU. tests/ops/round_routes_test.cpp checks every promise; here are arguments
and torch."""

import numpy as np
import pytest

import penstock
from penstock import moe, round_routes, route


def routed(tokens=300, experts=8, k=2, dtype="int32", scoring="softmax_topk"):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(tokens, experts)).astype(np.float32)
    return logits, *route(logits, k, id_dtype=dtype, scoring=scoring)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("scoring", ["softmax_topk", "topk_softmax", "sigmoid"])
def test_counts_are_multiples(dtype, scoring):
    logits, ids, weights = routed(dtype=dtype, scoring=scoring)
    new_ids, new_weights, changes = round_routes(logits, ids, weights, tile=16, extra=6,
                                                 scoring=scoring)
    assert new_ids.shape == new_weights.shape == (300, 8)
    assert new_ids.dtype == ids.dtype and changes.dtype == np.int32
    before, after = (np.bincount(each.ravel(), minlength=9)[:8] for each in (ids, new_ids))
    assert (after % 16 == 0).all() and (after - before == changes).all()
    assert (abs(changes) < 16).all() and (changes > 0).any() and (changes < 0).any()


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_types_and_rows_of_the_logits(dtype, padding):
    """f16 numbers, and rows with gaps between them, give what the same numbers give in f32 without gaps."""
    logits, _, _ = routed()
    rows = np.full((300, 8 + padding), np.nan, dtype)
    rows[:, :8] = logits
    plain = rows[:, :8].astype(np.float32)
    ids, weights = route(plain, 2)
    got = round_routes(rows[:, :8], ids, weights, tile=16)
    for one, other in zip(got, round_routes(plain, ids, weights, tile=16), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("tile", [64, 128])
def test_nearly_all_round_to_the_nearest_multiple(tile):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(24576, 128)).astype(np.float32)
    ids, weights = route(logits, 8)
    _, _, changes = round_routes(logits, ids, weights, tile=tile)
    over = np.bincount(ids.ravel(), minlength=128) % tile
    nearest_up = 2 * over >= tile
    assert nearest_up.sum() > 40 and not (changes[~nearest_up] > 0).any()
    assert (changes[nearest_up] > 0).sum() >= 0.9 * nearest_up.sum()


@pytest.mark.parametrize("k, experts, places", [(1, 20, 5), (12, 20, 16), (15, 20, 16), (16, 20, 16),
                                                (2, 4, 4), (2, 2, 2)])
def test_default_places(k, experts, places):
    """No more than moe() takes."""
    logits, ids, weights = routed(experts=experts, k=k)
    new_ids, _, _ = round_routes(logits, ids, weights, tile=16)
    assert new_ids.shape == (300, places)
    assert (np.bincount(new_ids.ravel(), minlength=experts + 1)[:experts] % 16 == 0).all()


def test_moe_takes_the_result():
    logits, ids, weights = routed()
    rng = np.random.default_rng(2)
    x, gate_up, down = (rng.normal(0, 0.3, shape).astype(np.float32)
                        for shape in ((300, 16), (8, 48, 16), (8, 16, 24)))
    new_ids, new_weights, _ = round_routes(logits, ids, weights, tile=32)
    out = moe(x, gate_up, down, new_ids, new_weights)
    same = moe(x, gate_up, down, new_ids[:, ::-1].copy(), new_weights[:, ::-1].copy())
    assert np.allclose(out, same, atol=1e-5) and np.isfinite(out).all()


@pytest.mark.parametrize("name, change", [
    ("tile", {"tile": 0}), ("tile", {"tile": 2.5}), ("extra", {"extra": 1.5}),
    ("extra", {"extra": 15}), ("extra", {"extra": -1}), ("scoring", {"scoring": "best"}), ("logits", {"logits": np.zeros(3, np.float32)}),
    ("ids", {"ids": np.zeros((299, 2), np.int32)}), ("ids", {"ids": np.zeros((300, 17), np.int32)}),
    ("weights", {"weights": np.zeros((300, 3), np.float32)}),
])
def test_errors_name_the_argument(name, change):
    arguments = dict(zip(("logits", "ids", "weights"), routed())) | change
    with pytest.raises(penstock.InvalidArgument, match=f"^{name}: "):
        round_routes(**arguments)


class TestTorch:
    def test_as_numpy_and_compiled(self, torch):
        arrays = routed()
        expected = round_routes(*arrays, tile=16)
        tensors = [torch.from_numpy(each) for each in arrays]
        compiled = torch.compile(lambda *given: round_routes(*given, tile=16), fullgraph=True,
                                 backend="eager")
        for got in (round_routes(*tensors, tile=16), compiled(*tensors)):
            for one, other in zip(got, expected, strict=True):
                assert np.array_equal(one.numpy(), other)

    def test_has_no_backward(self, torch):
        logits, ids, weights = (torch.from_numpy(each) for each in routed())
        with pytest.raises(penstock.Unsupported, match="logits requires a gradient"):
            round_routes(logits.requires_grad_(), ids, weights)

    @pytest.mark.parametrize("padding", [0, 3])
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
    def test_types_and_rows_of_the_logits(self, torch, device, dtype, padding):
        """The bits of the CPU for the same numbers in f32."""
        rows = torch.full((300, 8 + padding), torch.nan, dtype=getattr(torch, dtype))
        rows[:, :8] = torch.from_numpy(routed()[0])
        plain = rows[:, :8].float().contiguous()
        ids, weights = route(plain, 2)
        expected = round_routes(plain, ids, weights, tile=16)
        got = round_routes(rows.to(device)[:, :8], ids.to(device), weights.to(device), tile=16)
        for one, other in zip(got, expected, strict=True):
            assert one.device.type == device and torch.equal(one.cpu(), other)
