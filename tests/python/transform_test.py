"""Elementwise functions on the CPU; gpu_test.py and the C++ tests have those on a GPU."""

import doctest
import inspect
import math
import sys
import types

import numpy as np
import pytest

import penstock
from penstock import transform

TYPES = {"f32": np.float32, "f16": np.float16}


def random(count, dtype, seed=1):
    return np.random.default_rng(seed).normal(0, 2, count).astype(dtype)


def exact(function, *inputs):
    """In f64."""
    x = [each.astype(np.float64) for each in inputs]
    erf = np.vectorize(math.erf)
    return {
        "scale": lambda: 1.5 * x[0],
        "axpby": lambda: 0.25 * x[0] - 3 * x[1],
        "add": lambda: sum(x),
        "mul": lambda: x[0] * x[1],
        "swiglu": lambda: x[0] / (1 + np.exp(-x[0])) * x[1],
        "gelu": lambda: x[0] / 2 * (1 + erf(x[0] / math.sqrt(2))),
        "gelu_tanh": lambda: x[0] / 2 * (1 + np.tanh(
            math.sqrt(2 / math.pi) * (x[0] + 0.044715 * x[0]**3))),
    }[function]()


CALLS = {
    "scale": (1, lambda x, **more: transform.scale(x, 1.5, **more)),
    "axpby": (2, lambda x, y, **more: transform.axpby(x, y, 0.25, -3, **more)),
    "add": (3, transform.add),
    "mul": (2, transform.mul),
    "swiglu": (2, transform.swiglu),
    "gelu": (1, transform.gelu),
    "gelu_tanh": (1, lambda x, **more: transform.gelu(x, approximate="tanh", **more)),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CALLS)
def test_close_to_the_formula(name, dtype):
    count, call = CALLS[name]
    inputs = [random(1001, TYPES[dtype], seed) for seed in range(count)]
    wanted = exact(name, *inputs)
    result = call(*inputs)
    assert result.dtype == TYPES[dtype] and result.shape == (1001,)
    tolerance = 1e-6 if dtype == "f32" else 1e-3
    np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=tolerance, atol=1e-6)
    out = np.full_like(inputs[0], np.nan)
    assert call(*inputs, out=out) is out
    assert (out == result).all()
    assert call(*inputs, out=inputs[0]) is inputs[0]  # in place
    assert (inputs[0] == result).all()


def test_cast_rounds_to_the_nearest():
    x = random(1000, np.float32)
    assert (transform.cast(x, "f16") == x.astype(np.float16)).all()
    assert (transform.cast(x.astype(np.float16), np.float32) == x.astype(np.float16)).all()
    out = penstock.empty(1000, "bf16", device="cpu")
    assert transform.cast(x, out=out) is out
    back = transform.cast(out, "f32").numpy()
    np.testing.assert_allclose(back, x, rtol=2.0**-8)
    bits = x.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32)
    assert (back.view(np.uint32) == rounded).all()


@pytest.mark.parametrize("dtype", ["f16", "float16", "half", np.float16, np.half, np.dtype("f2")])
def test_cast_takes_the_dtypes_of_numpy(dtype):
    x = random(100, np.float32)
    assert (transform.cast(x, dtype) == x.astype(np.float16)).all()
    out = np.zeros(100, np.float16)
    assert transform.cast(x, dtype, out=out) is out  # the dtype of out
    assert (out == x.astype(np.float16)).all()


def test_cast_takes_a_dtype_beside_an_array_of_penstock():
    x, out = np.ones(4, np.float32), penstock.empty(4, "bf16", device="cpu")
    assert transform.cast(x, "bfloat16", out=out) is out
    with pytest.raises(ValueError, match="^dtype: expected bf16, the dtype of out, or None"):
        transform.cast(x, "f16", out=out)


def test_arrays_of_penstock_make_arrays_of_penstock():
    x = penstock.empty((2, 3), "f32", device="cpu")
    x.numpy()[:] = 3
    y = transform.scale(x, 2)
    assert isinstance(y, penstock.Array) and y.shape == (2, 3)
    assert (y.numpy() == 6).all()


def test_nothing_to_do():
    assert transform.mul(np.empty((0, 4), np.float32), np.empty((0, 4), np.float32)).shape == (0, 4)


@pytest.mark.parametrize("call, says", [
    (lambda x: transform.scale(x.astype(np.int32), 2), "^x: expected elements of type f32, f16"),
    (lambda x: transform.mul(x, x[:3]), "^y: expected the shape of x"),
    (lambda x: transform.mul(x, x, out=x[:3]), "^out: expected the shape of x"),
    (lambda x: transform.mul(x[::2], x[:2]), "^x: expected a contiguous view"),
    (lambda x: transform.scale(x[:3], 2, out=x[1:]),
     "^out: expected the memory of x .*or memory that does not overlap it, given .* part of x, f32"),
    (lambda x: transform.add(x), "^inputs: expected two to four arrays, given 1"),
    (lambda x: transform.add(x, x, x.astype(np.float16)), r"^inputs\[2\]: expected elements of type"),
    (lambda x: transform.add(x, x, 3), r"inputs\[2\]"),
    (lambda x: transform.gelu(x, approximate="erf"), "^approximate: expected 'none' or 'tanh'"),
    (lambda x: transform.gelu(x, kernel="fast"), "^kernel: expected 'best', 'portable' or 'sm90'"),
    (lambda x: transform.cast(x), "^dtype: expected the dtype of the result"),
    (lambda x: transform.cast(x, "f16", out=x),
     "^dtype: expected f32, the dtype of out, or None, given 'f16'"),
    (lambda x: transform.cast(x, "f32", out=x.astype(np.int32)), "^out: expected elements of type"),
    (lambda x: transform.cast(x, "f32", out=memoryview(x)), "^dtype: expected None, as out has no"),
    (lambda x: transform.cast(x, "i32"), "^dtype: expected f32, f16 or bf16"),
    (lambda x: transform.cast(x, "bf16"), "^out: expected an array .*NumPy has no bf16"),
    (lambda x: transform.scale(memoryview(x), 2), "^out: expected an array to write to"),
])
def test_errors_name_the_argument(call, says):
    x = np.ones(4, np.float32)
    with pytest.raises((ValueError, TypeError), match=says):
        call(x)
    assert (x == 1).all()


def test_what_may_not_be_written_is_refused():
    x = np.ones(4, np.float32)
    fixed = np.ones(4, np.float32)
    fixed.flags.writeable = False
    transform.mul(fixed, fixed, out=x)
    with pytest.raises(ValueError, match="^out: "):
        transform.mul(x, x, out=fixed)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensors_of_torch(torch, dtype):
    element = getattr(torch, dtype)
    x = torch.randn(3, 1001).to(element)
    y = transform.gelu(x)
    assert y.dtype == element and y.shape == x.shape
    wanted = torch.nn.functional.gelu(x.double())
    torch.testing.assert_close(y.double(), wanted, rtol=1e-2 if element != torch.float32 else 1e-5,
                               atol=1e-6)
    for to in (torch.float32, np.float32, "f32"):
        assert torch.equal(transform.cast(x, to), x.float())
        assert torch.equal(transform.cast(x, to, out=torch.zeros(3, 1001)), x.float())
    with pytest.raises(ValueError, match="^dtype: expected f32, the dtype of out, or None"):
        transform.cast(x, torch.float16, out=torch.zeros(3, 1001))
    with pytest.raises(ValueError, match="^x: expected an array that its library shares"):
        transform.scale(torch.ones(4, requires_grad=True), 2)


def test_autograd_of_torch_sees_that_a_saved_tensor_was_written(torch):
    x, saved = torch.ones(4, requires_grad=True), torch.ones(4)
    product = (x * saved).sum()
    transform.scale(saved, 2, out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@pytest.mark.parametrize("on_gpu", ["x", "y", "out"])
def test_tensors_on_a_gpu_use_the_current_stream_of_torch(monkeypatch, on_gpu):
    """torch is replaced by a fake; gpu_test.py has the real one."""
    fake = types.ModuleType("torch")
    fake.Tensor = type("Tensor", (), {"is_cuda": True, "device": "cuda:1"})
    fake.cuda = types.SimpleNamespace(current_stream=lambda device: f"current on {device}")
    monkeypatch.setattr(transform, "tell_autograd", lambda out: None)
    streams = []
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr("penstock._core.elementwise",
                        lambda function, inputs, out, a, b, stream, kernel: streams.append(stream))
    arrays = {name: np.ones(4, np.float32) for name in ("x", "y", "out")}
    arrays[on_gpu] = fake.Tensor()
    transform.mul(**arrays)
    transform.mul(**arrays, stream="given")
    assert streams == ["current on cuda:1", "given"]


EXAMPLES = {"transform": transform.__doc__} | {
    name: inspect.getdoc(getattr(transform, name)) for name in transform.__all__}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, 0)
    assert test.examples
    runner = doctest.DocTestRunner()
    failures = []
    runner.run(test, out=failures.append)
    assert runner.failures == 0, "".join(failures)
