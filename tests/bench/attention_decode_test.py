"""The benchmark of attention of few queries per sequence, and of pages."""

import types

import numpy
import pytest

from penstock.bench import Context
from penstock.bench._clock import CpuClock
from penstock.bench._correctness import check
from penstock.bench.decoding.case import READ, DecodeCase
from penstock.bench.decoding.paged_case import PAGES, PagedCase
from penstock.bench.operators import attention, attention_decode
from penstock.bench.prefill.shapes import Shape


@pytest.fixture
def case(context):
    return attention_decode.operator.cases(context)[0]


@pytest.fixture
def uneven(context):
    return attention_decode.operator.cases(context)[1]


@pytest.fixture
def chunk(context):
    return next(case for case in attention.operator.cases(context) if isinstance(case, PagedCase))


@pytest.mark.parametrize("which", ["case", "uneven", "chunk"])
def test_every_kernel_is_right(which, request):
    case = request.getfixturevalue(which)
    verdicts = check(case, dict(case.kernels()), CpuClock())
    assert set(verdicts) == {"best", "pages of 64", "pages of 16"}
    assert not [verdict.complaint for verdict in verdicts.values() if not verdict.right]


def test_a_kernel_that_leaves_out_a_page_is_found(case):
    def wrong(inputs, out):
        tables = {rows: numpy.maximum(table, 1) for rows, table in inputs["tables"].items()}
        case.kernels()["pages of 16"](inputs | {"tables": tables}, out)

    assert not check(case, {"best": wrong}, CpuClock())["best"].right


def test_sequences_of_several_lengths_lie_one_after_the_other(uneven):
    inputs = uneven.make_inputs(0)
    assert inputs["k"].shape == (384, 2, 32) and inputs["q"].shape == (3, 2, 8, 32)
    assert inputs["begins_k"].tolist() == [0, 192, 256, 384]
    assert inputs["lengths"].tolist() == [192, 64, 128]
    assert sorted(inputs["tables"][64][2, :2]) == [4, 5] and inputs["tables"][64][1, 0] == 3
    assert uneven.params["keys_of"] == [192, 64, 128]


def test_a_query_that_attends_to_another_sequence_is_found(uneven):
    def wrong(inputs, out):
        begins = inputs["begins_k"].copy()
        begins[1] += 1
        uneven.kernels()["best"](inputs | {"begins_k": begins}, out)

    assert not check(uneven, {"best": wrong}, CpuClock())["best"].right


def test_pages_that_some_queries_do_not_see_keep_their_places(chunk):
    assert (chunk.params["length"], chunk.params["keys"]) == (64, 256)
    for rows in PAGES:
        each, moved = 256 // rows, 192 // rows
        for sequence, mine in enumerate(chunk.make_inputs(0)["tables"][rows]):
            assert sorted(mine[:moved] - sequence * each) == list(range(moved))
            assert (mine[moved:] - sequence * each).tolist() == list(range(moved, each))


def test_tables_are_the_pages_of_each_sequence_in_some_order(case):
    tables = case.make_inputs(0)["tables"]
    for rows in PAGES:
        each = case.params["keys"] // rows
        assert tables[rows].dtype == numpy.int32
        for sequence, mine in enumerate(tables[rows]):
            assert sorted(mine) == list(range(sequence * each, (sequence + 1) * each))
    assert (tables[16] != case.make_inputs(1)["tables"][16]).any()


def test_bytes_are_those_of_keys_and_values(case):
    shape = attention_decode.SMALL["small"]
    keys = 2 * shape.batch * shape.keys * shape.kv_heads * shape.dim * 4
    assert case.bytes == keys + 2 * shape.batch * shape.heads * shape.dim * 4
    assert case.roof_us({"host_copy": 1e9}) == pytest.approx(case.bytes * 1e-3)


def test_on_a_gpu_the_floor_is_a_read(monkeypatch):
    device = types.SimpleNamespace(kind="cuda", name="cuda", capabilities={"l2_bytes": 50 << 20})
    case = DecodeCase(Context(device, seed=11), "it", Shape(2, 1, 8, 128, heads_kv=2, keys=640))
    assert list(case.engines()) == [READ]
    assert case.engines()[READ]._read == 2 * 640 * 2 * 256 * 2
    assert {"best", "captured", "one block per head", "pages of 16"} <= set(case.kernels())
    brief = DecodeCase(case._context, "it", case._shape, brief=True)
    assert list(brief.kernels()) == ["best", "pages of 64", "pages of 16", "batch invariant"]


def test_pages_divide_the_keys():
    shapes = attention_decode.SHAPES | attention_decode.BRIEF | attention_decode.SMALL
    chunks = {name: attention.on_gpu()[name] for name in attention.PAGED if name in attention.on_gpu()}
    for shape in (shapes | chunks).values():
        assert all(keys % rows == 0 for rows in PAGES for _, keys in shape.sequences)
    assert all(shape.length <= 16 for shape in shapes.values()) and len(chunks) == 1


def test_one_sequence_has_half_of_the_keys():
    shape = attention_decode.BRIEF["1024 to 131072 keys"]
    assert len(shape.keys_of) == shape.batch and 2 * max(shape.keys_of) == shape.rows[1] == 16 * 16384
