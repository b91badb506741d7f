"""Checkpoints: Penstock and the safetensors package read each other's files."""

import importlib
import itertools
import json
import os
import struct

import numpy as np
import pytest

import penstock
from penstock import weights

safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed here")
importlib.import_module("safetensors.numpy")

TYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32",
         "uint16", "uint8", "bool", "complex64"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def arrays(seed=1):
    """Arrays of every type that NumPy has, also empty ones and one without dimensions."""
    random = np.random.default_rng(seed)
    shapes = itertools.cycle([(3, 5), (), (7,), (0, 4), (2, 3, 4), (1000, 33)])
    made = {f"layers.{i}.é\"{dtype}": random.integers(0, 2 if dtype == "bool" else 100, shape)
            .astype(dtype) for i, (dtype, shape) in enumerate(zip(TYPES * 2, shapes))}
    return {name: np.asarray(array) for name, array in made.items()}


def expect_same(got, expected):
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape, name
        assert np.array_equal(got[name], array), name


@pytest.mark.parametrize("shared", [4096, 20_000, 1 << 20])
def test_small_arrays_share_memory(path, monkeypatch, shared):
    """Whatever the size of the pieces; arrays are aligned, and can be written to apart."""
    monkeypatch.setattr(weights, "_SHARED", shared)
    expected = arrays() | {"large": np.arange(30_000.0)}
    weights.save(path, expected)
    loaded = weights.load(path)
    expect_same(loaded, expected)
    for name, array in loaded.items():
        assert array.flags.aligned and array.flags.writeable and array.flags.c_contiguous, name
        array[...] = 1
    assert all((array == 1).all() for array in loaded.values())


@pytest.mark.parametrize("behind", [0, 1, 4095])
@pytest.mark.parametrize("rows", [None, range(3, 1000)])
def test_long_reads_to_any_address(path, behind, rows):
    """Where the page cache can be bypassed, and where it cannot."""
    values = np.random.default_rng(1).integers(0, 256, (1001, 70_001), np.uint8)
    weights.save(path, {"a": np.ones(3, np.int8), "b": values})
    wanted = values if rows is None else values[rows.start:rows.stop]
    room = penstock.empty(wanted.nbytes + 4096, "u8", device="cpu").numpy()
    room[:] = 7
    out = room[behind:behind + wanted.nbytes].reshape(wanted.shape)
    assert weights.open(path).read("b", out, rows=rows) is out
    assert np.array_equal(out, wanted)
    assert (room[:behind] == 7).all() and (room[behind + wanted.nbytes:] == 7).all()


def test_reads_what_safetensors_wrote(path):
    expected = arrays()
    safetensors.numpy.save_file(expected, path, metadata={"format": "pt", "é": ""})
    expect_same(weights.load(path), expected)
    checkpoint = weights.open(path)
    with safetensors.safe_open(path, "np") as theirs:
        assert checkpoint.names == theirs.offset_keys()
        assert checkpoint.metadata() == theirs.metadata()
        for name in checkpoint:
            assert checkpoint.dtype(name) == theirs.get_slice(name).get_dtype()
            assert checkpoint.shape(name) == tuple(theirs.get_slice(name).get_shape())
    assert checkpoint.nbytes == sum(array.nbytes for array in expected.values())
    assert len(checkpoint) == len(expected) and checkpoint.names[0] in checkpoint
    assert "no" not in checkpoint and 7 not in checkpoint
    assert repr(checkpoint) == (f"<penstock.weights.Checkpoint of {len(expected)} tensors, "
                                f"{checkpoint.nbytes} bytes in 1 files>")


def test_safetensors_reads_what_was_written(path):
    expected = arrays()
    weights.save(path, expected, metadata={"by": "penstock \"é\""})
    expect_same(safetensors.numpy.load_file(path), expected)
    with safetensors.safe_open(path, "np") as theirs:
        assert theirs.metadata() == {"by": "penstock \"é\""}


def test_a_file_is_the_same_as_that_of_safetensors(path, tmp_path):
    one_type = {f"t{i}": np.full((i, 3), i, np.float32) for i in (3, 1, 10, 2)}
    weights.save(path, one_type, metadata={"format": "pt"})
    safetensors.numpy.save_file(one_type, tmp_path / "theirs", metadata={"format": "pt"})
    assert path.read_bytes() == (tmp_path / "theirs").read_bytes()


def test_types_that_numpy_lacks(path):
    data = {"a": ("bfloat16", [4, 2], 16), "b": ("float8_e4m3fn", [5], 5),
            "c": ("float8_e5m2", [1, 3], 3), "d": ("float8_e8m0fnu", [2], 2)}
    held = np.arange(16, dtype=np.uint8)
    safetensors.serialize_file({
        name: safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=held.ctypes.data,
                                     data_len=size)
        for name, (dtype, shape, size) in data.items()}, path)
    checkpoint = weights.open(path)
    assert [checkpoint.dtype(name) for name in "abcd"] == ["BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0"]
    for name in "abcd":
        out = bytearray(data[name][2])
        assert checkpoint.read(name, out) is out and bytes(out) == bytes(range(len(out)))
        with pytest.raises(ValueError, match="^like: expected 'torch', or an array as out"):
            checkpoint.read(name)


def test_rows(path):
    array = np.arange(60, dtype=np.int32).reshape(10, 2, 3)
    weights.save(path, {"a": array, "scalar": np.float32(3)})
    checkpoint = weights.open(path)
    for rows in (range(0, 10), range(3, 7), range(9, 10), range(10, 10), range(0, 0)):
        assert np.array_equal(checkpoint.read("a", rows=rows), array[rows.start:rows.stop])
    out = np.zeros((2, 2, 3), np.int32)
    assert checkpoint.read("a", out, rows=range(4, 6)) is out and np.array_equal(out, array[4:6])
    for wrong in (range(0, 11), range(-1, 2), range(0, 4, 2), range(5, 4), slice(0, 2)):
        with pytest.raises(ValueError, match="^rows: expected a range of consecutive rows"):
            checkpoint.read("a", rows=wrong)
    with pytest.raises(ValueError, match="^rows: .* inside 0 to 0"):
        checkpoint.read("scalar", rows=range(0, 1))


def test_several_arrays_in_one_call(path):
    expected = arrays()
    weights.save(path, expected)
    out = {name: np.empty_like(array) for name, array in expected.items()}
    weights.open(path).read_into(out)
    expect_same(out, expected)


def test_shards_as_transformers_writes_them(tmp_path):
    expected = arrays()
    names = sorted(expected)
    index = {}
    for number in range(3):
        file = f"model-0000{number + 1}-of-00003.safetensors"
        part = {name: expected[name] for name in names[number::3]}
        safetensors.numpy.save_file(part, tmp_path / file)
        index |= dict.fromkeys(part, file)
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": index}, indent=2))
    expect_same(weights.load(tmp_path), expected)
    expect_same(weights.load(tmp_path / "model.safetensors.index.json"), expected)
    assert len(weights.open(tmp_path).files) == 3
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model-00002-of-00003"):
        weights.open(tmp_path)


def test_writes_shards(tmp_path, path):
    expected = arrays()
    weights.save(path, expected, shard_bytes=50_000)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == expected.keys()
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in expected.values())
    theirs = {}
    for file in set(index["weight_map"].values()):
        theirs |= safetensors.numpy.load_file(tmp_path / file)
    assert len(set(index["weight_map"].values())) > 2
    expect_same(theirs, expected)
    expect_same(weights.load(tmp_path), expected)


def test_alignment(path):
    weights.save(path, {"a": np.ones(4096, np.uint8)}, alignment=4096)
    assert path.stat().st_size == 8192
    expect_same(safetensors.numpy.load_file(path), {"a": np.ones(4096, np.uint8)})


def test_arrays_that_are_not_contiguous_are_written(path):
    array = np.arange(24).reshape(4, 6)
    weights.save(path, {"a": array.T, "b": array[:, ::2]})
    expect_same(weights.load(path), {"a": array.T, "b": array[:, ::2]})


def file_of(header, data=0):
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text)) + text + bytes(data)


@pytest.mark.parametrize("content", [
    b"", b"1234567", file_of("[]"), file_of("{}", 1), file_of("{"), file_of(b'{"\xff":1}'),
    struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 100_000_001) + b"{}",
    file_of('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', 4),
    file_of('{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', 8),
    file_of('{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}'),
    file_of('{"a":{"dtype":"X","shape":[1],"data_offsets":[0,1]}}', 1),
    file_of('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
            '"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1),
], ids=lambda content: f"{len(content)} bytes")
def test_both_refuse(path, content):
    path.write_bytes(content)
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(content)
    with pytest.raises(penstock.InvalidArgument, match=str(path)):
        weights.open(path)


def test_refusals_name_the_argument(path):
    weights.save(path, {"a": np.zeros(4, np.float32)})
    checkpoint = weights.open(path)
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    for message, call in [
        ("^name: expected one of the 1 tensors", lambda: checkpoint.read("b")),
        ("^name: ", lambda: checkpoint.shape("b")),
        (r"^reads\[0\].to: expected 16 bytes", lambda: checkpoint.read("a", np.zeros(5, "f4"))),
        ("^out: expected writable contiguous memory", lambda: checkpoint.read("a", frozen)),
        ("^like: ", lambda: checkpoint.read("a", like="list")),
        ("^device: ", lambda: checkpoint.read("a", device="cpu")),
        ("^device: ", lambda: checkpoint.read("a", frozen, like="torch", device="cpu")),
        ("^like: ", lambda: weights.load(path, like="list")),
        ("^file: expected 0 or more", lambda: checkpoint.metadata(-1)),
        ("^file: expected an index below 1", lambda: checkpoint.metadata(1)),
        (r"^tensors\['x'\]: .* of >f4", lambda: weights.save(path, {"x": np.zeros(1, ">f4")})),
        (r"^tensors\['x'\]: .*list of None", lambda: weights.save(path, {"x": [1]})),
        (r"^tensors\[0\].name: ", lambda: weights.save(path, {"__metadata__": np.zeros(1)})),
        ("^alignment: ", lambda: weights.save(path, {}, alignment=12)),
        ("^alignment: ", lambda: weights.save(path, {}, alignment=-1)),
        ("^shard_bytes: ", lambda: weights.save(path, {}, shard_bytes=-1)),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    assert os.listdir(path.parent) == [path.name]  # nothing temporary is left
    expect_same(weights.load(path), {"a": np.zeros(4, np.float32)})


def test_a_file_that_is_truncated_while_it_is_open(path):
    weights.save(path, {"a": np.zeros(1000, np.float32)})
    checkpoint = weights.open(path)
    os.truncate(path, 1000)
    with pytest.raises(OSError, match="which ends at byte 1000, .* bytes too early") as caught:
        checkpoint.read("a")
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8",
                                   "bool", "int64"])
def test_torch(torch, path, dtype):
    raw = torch.arange(64, dtype=torch.uint8) % 2
    tensor = raw.view(getattr(torch, dtype)).reshape(2, -1)
    weights.save(path, {"a": tensor, "t": tensor.t()})
    checkpoint = weights.open(path)
    for like in ({"like": "torch"}, {"out": torch.empty_like(tensor)}):
        got = checkpoint.read("a", **like)
        assert got.dtype == tensor.dtype and got.shape == tensor.shape
        assert torch.equal(got.view(torch.uint8), tensor.view(torch.uint8))
    loaded = weights.load(path, like="torch", device="cpu")
    assert torch.equal(loaded["t"].contiguous().view(torch.uint8),
                       tensor.t().contiguous().view(torch.uint8))


@pytest.mark.gpu
def test_gpu(torch, path):
    if penstock.Device.why_no_gpu():
        pytest.skip("no GPU")
    random = torch.Generator().manual_seed(1)
    expected = {f"t{i}": torch.randn(1000 * i, 33, generator=random).bfloat16() for i in range(5)}
    weights.save(path, expected)
    loaded = weights.load(path, like="torch", device="cuda")
    for name, tensor in expected.items():
        assert torch.equal(loaded[name].cpu(), tensor)
    part = weights.open(path).read("t4", rows=range(7, 19), like="torch", device="cuda")
    assert torch.equal(part.cpu(), expected["t4"][7:19])
