"""compress() and decompress() of torch's tensors, on the CPU and on a GPU if there is one."""

import pytest

import penstock
from penstock import compress, compressed_bytes_limit, decompress

torch = pytest.importorskip("torch", reason="torch is not installed here")


def normal(*shape):
    random = torch.Generator().manual_seed(1)
    return (torch.randn(*shape, generator=random) * 0.02).bfloat16()


def same_bits(a, b):
    return a.dtype == b.dtype and torch.equal(a.view(torch.int16), b.view(torch.int16))


def test_gives_back_the_bits():
    for values in (normal(70, 300), normal(0), torch.full((5000,), torch.nan).bfloat16()):
        small = compress(values)
        assert small.dtype == torch.uint8 and small.numel() <= compressed_bytes_limit(values.numel())
        assert same_bits(decompress(small, shape=values.shape), values)


def test_parameters_and_given_tensors():
    values = torch.nn.Parameter(normal(9000))
    room = torch.full((compressed_bytes_limit(9000),), 0xA5, dtype=torch.uint8)
    small = compress(values, out=room)
    assert small.data_ptr() == room.data_ptr() and (room[small.numel():] == 0xA5).all()
    out = torch.zeros(90, 100, dtype=torch.bfloat16)
    assert decompress(small, out=out) is out and same_bits(out.view(-1), values.detach())


def test_refuses_other_dtypes():
    for dtype in (torch.float16, torch.float32, torch.int32):
        with pytest.raises(penstock.InvalidArgument, match="^x: expected elements of type bf16"):
            compress(torch.zeros(8, dtype=dtype))
    with pytest.raises(penstock.InvalidArgument, match="^x: expected a contiguous"):
        compress(normal(8, 8).T)


@pytest.mark.gpu
class TestGpu:
    @pytest.fixture(autouse=True)
    def gpu(self):
        if penstock.Device.why_no_gpu() or not torch.cuda.is_available():
            pytest.skip("no GPU that torch can use")

    @pytest.mark.parametrize("pinned", [False, True])
    def test_gives_back_the_bits(self, pinned):
        values = normal(300, 1000)
        small = compress(values)
        small = small.pin_memory() if pinned else small.cuda()
        out = torch.full(values.shape, 7, dtype=torch.bfloat16, device="cuda")
        for blocks in (0, 3):
            assert decompress(small, out=out.fill_(7), thread_blocks=blocks) is out
            assert same_bits(out.cpu(), values)

    def test_new_tensors_need_a_shape(self):
        values = normal(300, 1000)
        small = compress(values).cuda()
        assert same_bits(decompress(small, shape=values.shape).cpu(), values)
        with pytest.raises(penstock.InvalidArgument, match="^out: expected an array to write to"):
            decompress(small)

    def test_refuses_tensors_elsewhere(self):
        values = normal(3000)
        with pytest.raises(penstock.InvalidArgument, match="^x: expected host memory"):
            compress(values.cuda(), out=torch.empty(9000, dtype=torch.uint8))
        with pytest.raises(penstock.InvalidArgument, match="^compressed: expected memory of cuda"):
            decompress(compress(values), out=values.cuda())
