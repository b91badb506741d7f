"""gemm() of torch's tensors on the CPU, and compiled, and on a GPU if there is one."""

import pytest

import penstock
from penstock import gemm

torch = pytest.importorskip("torch", reason="torch is not installed here")

DTYPES = [torch.float16, torch.bfloat16]


def draw(m=33, n=40, k=64, dtype=torch.bfloat16, device="cpu"):
    random = torch.Generator().manual_seed(1)
    return tuple(torch.rand(rows, k, generator=random).sub(0.5).to(dtype).to(device)
                 for rows in (m, n))


def check(out, a, b):
    wanted = a.double() @ b.double().T
    assert out.dtype == a.dtype and out.shape == wanted.shape
    bound = torch.finfo(a.dtype).eps * wanted.abs() + a.shape[1] * 2.0**-22
    assert ((out.double() - wanted).abs() <= bound).all()  # False for NaN


@pytest.mark.parametrize("dtype", DTYPES)
def test_as_the_reference(dtype):
    a, b = draw(dtype=dtype)
    out = gemm(a, b)
    check(out, a, b)
    room = torch.full_like(out, torch.nan)
    assert gemm(a, b, out=room) is room and torch.equal(room, out)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend):
    torch.compiler.reset()
    a, b = draw()
    compiled = torch.compile(lambda x, y: gemm(x * 2, y) + 1, fullgraph=True, backend=backend)
    assert torch.equal(compiled(a, b), gemm(a * 2, b) + 1)


def test_meta_tensors_have_shapes():
    a, b = draw(device="meta")
    assert gemm(a, b).shape == (33, 40)


def test_has_no_backward():
    a, b = draw()
    with pytest.raises(penstock.Unsupported, match="gemm: a requires a gradient"):
        gemm(a.requires_grad_(), b)
    with torch.no_grad():
        check(gemm(a, b), a.detach(), b)


def test_refuses_other_arrays():
    a, b = draw(dtype=torch.float16)
    with pytest.raises(penstock.InvalidArgument, match="^b: expected a torch tensor"):
        gemm(a, b.numpy())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", DTYPES)
def test_on_a_gpu(dtype):
    for m, n, k in ((300, 264, 136), (33, 41, 65), (1, 8, 8), (5, 8, 0)):
        a, b = draw(m, n, k, dtype, "cuda")
        check(gemm(a, b), a, b)
        check(gemm(a, b, kernel="portable"), a, b)
