"""resample() on a GPU: what the CPU gives, bit by bit. torch's part needs torch."""

import numpy as np
import pytest

import penstock
from gpu_support import pinned

if penstock.Device.why_no_gpu():
    pytest.skip(f"no GPU: {penstock.Device.why_no_gpu()}", allow_module_level=True)

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch(torch):
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


def signals(seed=1, episodes=5, samples=200, targets=300, columns=24, dtype=np.float32):
    """(values, times, at), with hits, equal times and times outside."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 3, (episodes, samples, columns)).astype(dtype)
    times = np.sort(rng.integers(0, 2 * samples, (episodes, samples)), 1) * 2.0
    return values, times, rng.integers(-9, 4 * samples + 9, (episodes, targets)).astype(np.float64)


class TestResample:
    """What the CPU gives is what a GPU gives, bit by bit; the CPU has a reference of its own."""

    @pytest.mark.parametrize("mode", ["linear", "nearest", "previous", "next"])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
    def test_arrays_of_penstock(self, dtype, mode):
        arrays = signals(dtype=dtype)
        stream = penstock.Stream("cuda")
        there = [penstock.empty(each.shape, each.dtype, memory="device") for each in arrays]
        here = [pinned(each) for each in arrays]
        for room, each in zip(there, here):
            penstock.copy(room, each, stream)
        with pytest.raises(ValueError, match="^stream: expected a stream, as the memory is on a GPU"):
            penstock.resample(*there, mode=mode)
        out, valid = penstock.resample(*there, mode=mode, valid=True, stream=stream)
        assert out.place == valid.place == "cuda:0"
        wanted, inside = penstock.resample(*arrays, mode=mode, valid=True)
        back, mask = penstock.empty(wanted.shape, dtype), penstock.empty(inside.shape, "bool")
        penstock.copy(back, out, stream)
        penstock.copy(mask, valid, stream)
        stream.synchronize()
        assert (back.numpy() == wanted).all() and (mask.numpy() == inside).all()


class TestResampleOfTorch:
    @pytest.fixture
    def both(self, torch):
        """The same tensors on the CPU and on the GPU."""
        here = [torch.from_numpy(each) for each in signals()]
        return here, [each.cuda() for each in here]

    @pytest.mark.parametrize("outside", ["clamp", "fill", "extrapolate"])
    @pytest.mark.parametrize("dtype, mode", [
        (dtype, mode) for dtype in ("float64", "float32", "bfloat16", "int64", "uint8")
        for mode in ("linear", "nearest", "previous", "next")
        if mode != "linear" or "int" not in dtype])  # integers are not blended
    def test_as_the_cpu(self, torch, both, dtype, mode, outside):
        element = getattr(torch, dtype)
        (values, *times), (_, *times_there) = both
        values = (values * 9).abs().to(element)
        more = {"mode": mode, "outside": outside, "fill": 3.0, "valid": True}
        out, valid = penstock.resample(values.cuda(), *times_there, **more)
        wanted, inside = penstock.resample(values, *times, **more)
        assert out.is_cuda and out.dtype == element
        assert torch.equal(out.cpu(), wanted) and torch.equal(valid.cpu(), inside)

    def test_slerp_and_ranges(self, torch, both):
        (values, *times), (there, *times_there) = both
        turned = torch.nn.functional.normalize(values.reshape(5, 200, 6, 4), dim=-1).flatten(2)
        ranges = [((4, 16), "slerp"), ((16, 20), "slerp", "wxyz"), (slice(20, None), "previous")]
        got = penstock.resample(turned.cuda(), *times_there, columns=ranges)
        torch.testing.assert_close(got.cpu(), penstock.resample(turned, *times, columns=ranges),
                                   rtol=1e-5, atol=1e-5)

    def test_several_sensors_of_their_own_lengths(self, torch, both):
        def fused(values, times, at):
            count = torch.tensor([200, 0, 7, 1, 199], device=values.device)
            row, row_times = values.flatten(0, 1), times.flatten().sort()[0]
            ends = torch.tensor([0, 10, 10, 500, 501, 1000], device=values.device)
            sensors = [penstock.Sensor(values, times, lengths=count),
                       penstock.Sensor(row, row_times, offsets=ends, mode="previous"),
                       penstock.Sensor(values[..., :3], times[0])]
            return penstock.resample(sensors, at=at[0], valid=True)

        here, there = both
        for got, wanted in zip(fused(*there), fused(*here)):
            assert torch.equal(got.cpu().nan_to_num(7.0), wanted.nan_to_num(7.0))

    def test_strided_and_expanded_tensors(self, torch, both):
        _, (values, times, at) = both
        for v in (values[:1].expand(5, -1, -1), values.transpose(0, 1).contiguous().transpose(0, 1),
                  values[..., 1::3], values[..., :1].expand(-1, -1, 5)):
            for t, a in ((times[:1].expand(5, -1), at[:, ::2]), (times[0], at[:1].expand(5, -1))):
                assert torch.equal(penstock.resample(v, t, a), penstock.resample(
                    v.contiguous(), t.contiguous(), a.contiguous()))
        room = torch.full((5, 300, 40), 7.0, device="cuda")
        penstock.resample(values, times, at, out=room[..., 3:27])
        assert torch.equal(room[..., 3:27], penstock.resample(values, times, at))
        assert (room[..., :3] == 7).all() and (room[..., 27:] == 7).all()

    def test_torchs_current_stream_is_used(self, torch, both):
        _, (values, times, at) = both
        wanted = penstock.resample(values, times, at)
        late = torch.zeros_like(values)
        torch.cuda.synchronize()
        own = torch.cuda.Stream()
        with torch.cuda.stream(own):
            torch.cuda._sleep(50_000_000)
            late.copy_(values)
            out = penstock.resample(late, times, at)
            assert not own.query()  # nobody waited
        own.synchronize()
        assert torch.equal(out, wanted)

    def test_another_stream_waits_for_torchs(self, torch, both):
        _, (values, times, at) = both
        wanted, late = penstock.resample(values, times, at), torch.zeros_like(values)
        stream = penstock.Stream("cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(50_000_000)
            late.copy_(values)
            out = penstock.resample(late, times, at, stream=stream)
        stream.synchronize()
        assert torch.equal(out, wanted)

    @pytest.mark.parametrize("compile", [False, True])
    def test_captured(self, torch, both, compile):
        _, (values, times, at) = both
        function = lambda v: penstock.resample(v, times, at) * 2
        if compile:
            function = torch.compile(function, fullgraph=True)
        fixed = values.clone()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            function(fixed)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = function(fixed)
        for seed in (2, 3):
            fixed.copy_(torch.from_numpy(signals(seed)[0]))
            graph.replay()
            assert torch.equal(out, penstock.resample(fixed, times, at) * 2)

    @pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
    def test_compiled_and_differentiated(self, torch, both, mode):
        (here, *times), (values, *times_there) = both

        def loss(v, t, a):
            return penstock.resample(v.sin(), t, a).square().sum()

        torch.compiler.reset()
        compiled = torch.compile(loss, fullgraph=True, mode=mode)
        here, values = here.double().requires_grad_(), values.double().requires_grad_()
        wanted, = torch.autograd.grad(loss(here, *times), here)
        for _ in range(3):
            got, = torch.autograd.grad(compiled(values, *times_there), values)
            torch.testing.assert_close(got.cpu(), wanted)

    def test_gradients_are_the_same_every_time(self, torch, both):
        _, (values, times, at) = both
        values.requires_grad_()
        out = penstock.resample(values, times, at)
        weight = torch.randn_like(out)
        first, *more = (torch.autograd.grad(out, values, weight, retain_graph=True)[0].clone()
                        for _ in range(5))
        assert all(torch.equal(first, each) for each in more)
        here = values.detach().cpu().requires_grad_()
        wanted, = torch.autograd.grad(penstock.resample(here, times.cpu(), at.cpu()), here,
                                      weight.cpu())
        torch.testing.assert_close(first.cpu(), wanted)

    def test_results_are_the_same_every_time(self, torch, both):
        _, arrays = both
        first = penstock.resample(*arrays)
        assert all(torch.equal(first, penstock.resample(*arrays)) for _ in range(10))

    def test_what_is_wrong_is_found_when_asked(self, torch, both):
        _, (values, times, at) = both
        long = torch.tensor([0, 200, 201, 1, 2], device="cuda")
        with pytest.raises(ValueError, match="^lengths: expected lengths from 0 to 200"):
            penstock.resample(values, times, at, lengths=long, check=True)
        with pytest.raises(ValueError, match="^times: expected non-decreasing timestamps"):
            penstock.resample(values, -times, at, check=True)
        with pytest.raises(ValueError, match="^at: expected target times within the timestamps"):
            penstock.resample(values, times, at, outside="error")
        with pytest.raises(ValueError, match="^at: expected memory of cuda:0"):
            penstock.resample(values, times, at.cpu())
        penstock.resample(values, -times, at, lengths=long)
        torch.cuda.synchronize()
