"""Tensors of torch on the CPU; gpu_test.py has those on a GPU."""

import gc

import numpy as np
import pytest

import penstock

torch = pytest.importorskip("torch", reason="torch is not installed here")

TYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
         "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}


@pytest.mark.parametrize("dtype", TYPES)
def test_torch_sees_the_same_bytes(dtype):
    room = penstock.empty((3, 5), dtype, device="cpu")
    tensor = torch.from_dlpack(room)
    assert tensor.dtype == TYPES[dtype] and tuple(tensor.shape) == (3, 5)
    tensor.fill_(1)
    del tensor
    assert torch.from_dlpack(room).to(torch.float32).sum() == 15


@pytest.mark.parametrize("dtype", TYPES)
def test_torchs_element_types(dtype):
    assert penstock.empty(1, TYPES[dtype]).dtype == dtype


def test_a_tensor_keeps_the_memory():
    tensor = torch.from_dlpack(penstock.empty(1 << 20, "u8"))
    tensor.fill_(5)
    gc.collect()
    assert (tensor == 5).all()


def test_tensors_in_and_out_of_stages(pipeline):
    ring = pipeline.ring("ring", shape=16, dtype=torch.float32)
    source, result = torch.arange(64.0).reshape(4, 16), torch.zeros(4, 16)

    def fill(item):
        penstock.copy(item.slot(ring), source[item.index], item.stream)

    def double(item):
        torch.from_dlpack(item.slot(ring)).mul_(2)

    def keep(item):
        penstock.copy(result[item.index], item.slot(ring), item.stream)

    a = pipeline.stage("fill", fill, uses=ring)
    b = pipeline.stage("double", double, after=a, uses=ring)
    pipeline.stage("keep", keep, after=b, uses=ring)
    pipeline.run(4)
    assert (result == source * 2).all()


def test_files(tmp_path):
    source = torch.arange(1000, dtype=torch.int32)
    penstock.write_file(tmp_path / "file", source)
    got = penstock.read_file(tmp_path / "file", dtype=torch.int32, like="torch")
    assert isinstance(got, torch.Tensor) and (got == source).all()
    out = torch.zeros(1000, dtype=torch.int32)
    assert penstock.read_file(tmp_path / "file", out=out) is out and (out == source).all()


def test_what_torch_will_not_share_is_refused_by_name():
    with pytest.raises(ValueError, match="^x: expected an array that its library shares"):
        penstock.iterate(torch.ones(4, requires_grad=True))
    with pytest.raises(ValueError, match="^x: expected .*given"):
        penstock.iterate(torch.ones(4, dtype=torch.complex64))


def test_strides_are_refused_where_bytes_are_wanted():
    with pytest.raises(ValueError, match="^src: expected a contiguous array, given .*strides"):
        penstock.copy(np.zeros(4, np.float32), torch.zeros(4, 4)[:, 1])
