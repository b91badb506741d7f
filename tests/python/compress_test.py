"""compress() and decompress() on the CPU, of NumPy arrays and Penstock's. compress_torch_test.py has
torch."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import penstock
from penstock import compress, compressed_bytes_limit, decompress


def normal(*shape, seed=1):
    """The bits of normally distributed bf16 values."""
    values = np.random.default_rng(seed).normal(0, 0.02, shape).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32), count=st.integers(0, 10000), bits=st.booleans())
def test_gives_back_the_bits(seed, count, bits):
    values = (np.random.default_rng(seed).integers(0, 65536, count).astype(np.uint16)
              if bits else normal(count, seed=seed))
    small = compress(values)
    assert small.dtype == np.uint8 and small.ndim == 1
    assert small.nbytes <= compressed_bytes_limit(count)
    back = decompress(small)
    assert back.dtype == np.uint16 and np.array_equal(back, values)


def test_weights_become_smaller():
    values = normal(512, 1024)
    assert compress(values).nbytes <= 0.672 * values.nbytes


def test_shapes():
    values = normal(3, 5, 700)
    small = compress(values)
    assert decompress(small).shape == (10500,)
    assert np.array_equal(decompress(small, shape=(3, 5, 700)), values)
    assert decompress(small, shape=10500).shape == (10500,)


def test_into_given_arrays():
    values = normal(9000)
    room = np.full(compressed_bytes_limit(9000), 0xA5, np.uint8)
    small = compress(values, out=room)
    assert small.base is room and (room[small.nbytes:] == 0xA5).all()
    out = np.zeros((90, 100), np.uint16)
    assert decompress(room, out=out) is out and np.array_equal(out.ravel(), values)


def test_penstocks_arrays():
    values = normal(700)
    array = penstock.empty(700, "bf16", device="cpu")
    decompress(compress(values), out=array)
    assert np.array_equal(decompress(compress(array)), values)


def test_the_wrong_number_of_elements_gives_nan():
    assert (decompress(compress(normal(700)), shape=701) == 0xFFFF).all()


@pytest.mark.parametrize("change, says", [
    ({"x": np.zeros(3, np.float16)}, "^x: expected elements of type bf16, given f16"),
    ({"x": np.zeros(3, np.float32)}, "^x: expected elements of type bf16, given f32"),
    ({"x": np.zeros((4, 6), np.uint16)[:, :3]}, "^x: expected a contiguous array"),
    ({"out": np.zeros(10, np.uint8)}, "^out: expected 80 bytes or more"),
    ({"out": np.zeros(100, np.float32)}, "^out: expected elements of type u8"),
    ({"out": np.frombuffer(bytes(100), np.uint8)}, "^out: expected a writable array"),
])
def test_compress_refuses(change, says):
    call = {"x": np.zeros(3, np.uint16)} | change
    with pytest.raises(penstock.InvalidArgument, match=says):
        compress(**call)


@pytest.mark.parametrize("change, says", [
    ({"compressed": np.zeros(100, np.uint8)}, "^compressed: expected data that compress"),
    ({"compressed": np.zeros(8, np.uint8)}, "^compressed: expected at least the 32 bytes"),
    ({"compressed": np.zeros(100, np.int32)}, "^compressed: expected elements of type u8"),
    ({"out": np.zeros(3, np.float32)}, "^out: expected elements of type bf16"),
    ({"out": np.zeros((3, 2), np.uint16)[:, 0]}, "^out: expected a contiguous array"),
    ({"out": np.zeros(3, np.uint16), "shape": 3}, "^shape: expected None, as out has one"),
    ({"thread_blocks": -1}, "^thread_blocks: expected 0 or more"),
])
def test_decompress_refuses(change, says):
    call = {"compressed": compress(np.zeros(3, np.uint16))} | change
    with pytest.raises(penstock.InvalidArgument, match=says):
        decompress(**call)


def test_arguments_that_are_no_arrays():
    with pytest.raises(TypeError, match="^x: expected an array"):
        compress("weights")
    with pytest.raises(penstock.InvalidArgument, match="^elements: expected 0 to 2"):
        compressed_bytes_limit(-1)
