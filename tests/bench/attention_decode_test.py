"""The benchmark of attention of one query per sequence."""

import types

import numpy
import pytest

from penstock.bench import Context
from penstock.bench._clock import CpuClock
from penstock.bench._correctness import check
from penstock.bench.decoding.case import PAGES, READ, DecodeCase
from penstock.bench.operators import attention_decode
from penstock.bench.prefill.shapes import Shape


@pytest.fixture
def case(context):
    return attention_decode.operator.cases(context)[0]


def test_every_kernel_is_right(case):
    verdicts = check(case, dict(case.kernels()), CpuClock())
    assert set(verdicts) == {"best", "pages of 64", "pages of 16"}
    assert not [verdict.complaint for verdict in verdicts.values() if not verdict.right]


def test_a_kernel_that_leaves_out_a_page_is_found(case):
    def wrong(inputs, out):
        tables = {rows: numpy.maximum(table, 1) for rows, table in inputs["tables"].items()}
        case.kernels()["pages of 16"](inputs | {"tables": tables}, out)

    assert not check(case, {"best": wrong}, CpuClock())["best"].right


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


def test_pages_divide_the_keys():
    for shape in (attention_decode.SHAPES | attention_decode.SMALL).values():
        assert all(shape.keys % rows == 0 for rows in PAGES) and shape.length == 1
