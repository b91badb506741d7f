"""The limits in the notes on attention are what the tool computes from the kernels' tiles."""

import attention_limits
import benchmarks
import pytest
from attention_limits import Rates, Tile, limit, tile_of

LAUNCHES = (benchmarks.ROOT / "src/ops/attention/sm90_launch.cuh").read_text()


def test_the_notes_hold_the_table():
    assert attention_limits.limits(Rates()) in (benchmarks.ROOT / "docs/notes/attention.md").read_text()


@pytest.mark.parametrize("instance, tile", [
    ("64, 64, 3, 128, 3, general", tile_of(64, 4096, False)),
    ("64, 64, 2, 128, 3, general", tile_of(64, 512, False)),
    ("128, 128, 2, 128, 2, general", tile_of(128, 512, True)),
    ("256, 256, 2, 80, 2, general", tile_of(256, 1024, True)),
    ("256, 256, 2, 64, 2, general", tile_of(256, 512, True)),
])
def test_the_tiles_are_those_of_the_kernels(instance, tile):
    assert f"AttentionConfig<Element, {instance}>" in " ".join(LAUNCHES.split())
    _, _, consumers, keys, *_ = instance.split(", ")
    assert tile == Tile(64 * int(consumers), int(keys), tile.rows == tile.keys == 128)


@pytest.mark.parametrize("length, causal, tile, scores", [
    (256, False, Tile(128, 128), 256 * 256),
    (256, True, Tile(128, 128), 128 * 128 * 3),
    (256, True, Tile(128, 128, True), 128 * 128 * 3 - 2 * 64 * 64),
    (200, False, Tile(192, 128), 2 * 192 * 256),
    (256, True, Tile(128, 80), 128 * 80 * (2 + 4)),
])
def test_scores_are_computed_in_whole_blocks(length, causal, tile, scores):
    assert tile.computed(length, causal) == scores


def test_a_limit_by_hand():
    of = limit(128, 16384, False, Rates(tflops=1000, copy=1, clock=1))
    assert of.tflop == pytest.approx(4 * 16 * 16384**2 * 128 * 1e-12) and of.computed == 1
    assert of.products_us == pytest.approx(of.tflop * 1e3)
    assert of.exponentials_us == pytest.approx(16 * 16384**2 / (132 * 16) * 1e-3)
    assert of.memory_us == pytest.approx(4 * 16384 * 2048 * 2 * 1e-6)
    assert of.us == max(of.products_us, of.exponentials_us, of.memory_us)
