"""resample() of torch's tensors on the CPU, compiled and differentiated.

gpu_resample_test.py has a GPU.
"""

import pytest

import penstock
from penstock import Sensor, resample

torch = pytest.importorskip("torch", reason="torch is not installed here")


def draw(seed=1, episodes=3, samples=6, targets=9, columns=4, dtype=torch.float64):
    """(values, times, at), with hits, equal times and times outside."""
    make = torch.Generator().manual_seed(seed)
    values = torch.randn(episodes, samples, columns, generator=make, dtype=torch.float64).to(dtype)
    times = torch.randint(0, 2 * samples, (episodes, samples), generator=make).sort(1)[0] * 2.0
    at = torch.randint(-3, 4 * samples + 3, (episodes, targets), generator=make).double()
    return values, times.double(), at


def through_numpy(values, times, at, **more):
    return torch.from_numpy(resample(values.numpy(), times.numpy(), at.numpy(), **more))


@pytest.fixture(params=["eager", "aot_eager", "inductor"])
def compiled(request):
    """Compiles a function whole; a break in its graph is an error."""
    if request.param == "inductor":
        pytest.importorskip("torch._inductor")
    torch.compiler.reset()
    return lambda function, **more: torch.compile(function, fullgraph=True, backend=request.param,
                                                  **more)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_as_numpys(dtype):
    arrays = draw(dtype=dtype)
    out, valid = resample(*arrays, outside="extrapolate", valid=True)
    assert isinstance(out, torch.Tensor) and out.dtype == dtype and valid.dtype == torch.bool
    assert torch.equal(out, through_numpy(*arrays, outside="extrapolate"))
    room, mask = torch.empty_like(out), torch.empty_like(valid)
    got = resample(*arrays, outside="extrapolate", out=room, valid=mask)
    assert got[0] is room and got[1] is mask
    assert torch.equal(room, out) and torch.equal(mask, valid)


def test_bf16():
    values, times, at = draw(dtype=torch.bfloat16)
    out = resample(values, times, at)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), resample(values.double(), times, at), rtol=2**-8,
                               atol=2**-8)
    assert torch.equal(resample(values, times, at, mode="next").double(),
                       resample(values.double(), times, at, mode="next"))


def test_expanded_and_strided_tensors():
    values, times, at = draw()
    for v in (values[:1].expand(3, -1, -1), values.transpose(0, 1).contiguous().transpose(0, 1),
              values.flip(2)[..., ::2], values[:, :, :1].expand(-1, -1, 5)):
        for t in (times, times[:1].expand(3, -1), times.T.contiguous().T):
            for a in (at, at[:1].expand(3, -1), at[:, ::2], at[0]):
                assert torch.equal(resample(v, t, a),
                                   resample(v.contiguous(), t.contiguous(), a.contiguous()))


def test_parameters_and_what_needs_no_gradient():
    values, times, at = draw()
    wanted = resample(values, times, at)
    with torch.no_grad():
        assert torch.equal(resample(torch.nn.Parameter(values), times, at), wanted)
        room = torch.empty_like(wanted)
        resample(values.clone().requires_grad_(), times, at, out=room)
    assert torch.equal(room, wanted)


def test_autograd_sees_what_is_written():
    values, times, at = draw()
    room = torch.ones(3, 9, 4, dtype=torch.float64)
    kept = (room * torch.ones(4, requires_grad=True)).sum()
    resample(values, times, at, out=room)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()
    with pytest.raises(ValueError, match="^out: expected a tensor that does not require a gradient"):
        resample(values, times, at, out=room.requires_grad_())


def test_several_sensors():
    values, times, at = draw()
    other, its_times, _ = draw(2, samples=4, columns=2)
    out, valid = resample([Sensor(values, times), Sensor(other, its_times, mode="previous")], at=at,
                          valid=True)
    assert torch.equal(out[..., :4], resample(values, times, at))
    assert torch.equal(out[..., 4:], resample(other, its_times, at, mode="previous"))
    assert valid.shape == (3, 9, 2)


class TestGradient:
    @pytest.mark.parametrize("outside", ["clamp", "fill", "extrapolate"])
    def test_against_differences(self, outside):
        values, times, at = draw(samples=4, targets=7, columns=2)
        values.requires_grad_()
        assert torch.autograd.gradcheck(
            lambda v: resample(v, times, at, outside=outside, fill=3.0), (values,))

    def test_of_episodes_that_differ_in_length(self):
        values, times, at = draw(samples=4, targets=5, columns=2)
        values.requires_grad_()
        lengths = torch.tensor([4, 1, 2], dtype=torch.int32)
        assert torch.autograd.gradcheck(
            lambda v: resample(v, times, at, lengths=lengths), (values,))
        row = values.detach()[0].requires_grad_()
        offsets = torch.tensor([0, 3, 4])
        assert torch.autograd.gradcheck(
            lambda v: resample(v, times[0], at[:2], offsets=offsets), (row,))
        assert torch.autograd.gradcheck(lambda v: resample(v, times[0], at[0]), (row,))

    def test_of_several_sensors(self):
        values, times, at = draw(samples=4, targets=5, columns=2)
        other, its_times, _ = draw(2, samples=3, columns=3)
        values.requires_grad_(), other.requires_grad_()
        held = Sensor(values.detach().clone(), times, mode="next")  # needs no gradient
        assert torch.autograd.gradcheck(
            lambda v, o: resample([Sensor(v, times), held, Sensor(o, its_times)], at=at,
                                  valid=True)[0], (values, other))

    def test_of_a_sum_whose_gradient_is_one_number(self):
        values, times, at = draw()
        values.requires_grad_()
        resample(values, times, at).sum().backward()
        torch.testing.assert_close(values.grad.sum(), torch.tensor(3.0 * 9 * 4).double())

    def test_is_the_same_every_time(self):
        values, times, at = draw(episodes=4, samples=20, targets=500, columns=8,
                                 dtype=torch.float32)
        values.requires_grad_()
        out = resample(values, times, at)
        weight = torch.randn_like(out)
        first, second = (torch.autograd.grad(out, values, weight, retain_graph=True)[0]
                         for _ in range(2))
        assert torch.equal(first, second)

    def test_of_other_modes_is_refused(self):
        values, times, at = draw()
        values.requires_grad_()
        for more in ({"mode": "nearest"}, {"columns": [((0, 2), "next")]}):
            out = resample(values, times, at, **more)
            with pytest.raises(penstock.Unsupported, match="only linear mode has a gradient"):
                out.sum().backward()

    def test_forwards_is_refused(self):
        values, times, at = draw()
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(values, torch.ones_like(values))
            with pytest.raises(penstock.Unsupported, match="forward-mode differentiation"):
                resample(dual, times, at)
            assert torch.equal(resample(values, times, at), through_numpy(values, times, at))
        with pytest.raises(penstock.Unsupported, match="forward-mode differentiation"):
            torch.func.jvp(lambda v: resample(v, times, at), (values,), (values,))

    def test_has_none_itself(self):
        values, times, at = draw()
        values.requires_grad_()
        out = resample(values, times, at).square().sum()
        grad, = torch.autograd.grad(out, values, create_graph=True)
        with pytest.raises(penstock.Unsupported, match="second derivatives are not supported"):
            grad.sum().backward()


class TestCompiled:
    def test_whole(self, compiled):
        def function(values, times, at):
            out, valid = resample(values * 2, times, at, outside="fill", fill=0.0, valid=True)
            return out + 1, valid

        arrays = draw()
        for got, wanted in zip(compiled(function)(*arrays), function(*arrays)):
            assert torch.equal(got, wanted)

    def test_several_sensors_with_ranges_and_lengths(self, compiled):
        def function(values, times, other, at, lengths):
            arm = Sensor(values, times, columns=[(slice(0, 2), "previous"), ((2, 4), "nearest")])
            return resample([arm, Sensor(other, times, lengths=lengths)], at=at) * 1.5

        values, times, at = draw()
        arrays = values, times, values[..., :1], at, torch.tensor([6, 0, 3])
        assert torch.equal(compiled(function)(*arrays).nan_to_num(7),
                           function(*arrays).nan_to_num(7))

    def test_into_a_given_tensor(self, compiled):
        def function(values, times, at, out):
            resample(values, times, at, out=out)
            return out * 2

        values, times, at = draw()
        out = torch.zeros(3, 9, 4, dtype=torch.float64)
        got = compiled(function)(values, times, at, out)
        assert torch.equal(out, resample(values, times, at)) and torch.equal(got, out * 2)

    def test_with_a_gradient(self, compiled):
        def function(values, times, at):
            return resample(values.sin(), times, at).square().sum()

        values, times, at = draw()
        values.requires_grad_()
        wanted, = torch.autograd.grad(function(values, times, at), values)
        got, = torch.autograd.grad(compiled(function)(values, times, at), values)
        torch.testing.assert_close(got, wanted)

    def test_for_any_number_of_samples(self, compiled):
        function = compiled(lambda v, t, a: resample(v, t, a) + 1, dynamic=True)
        for samples in (3, 5, 8):
            arrays = draw(samples=samples, targets=samples + 2)
            assert torch.equal(function(*arrays), resample(*arrays) + 1)

    def test_what_is_wrong_is_found_when_it_runs(self, compiled):
        values, times, at = draw()
        function = compiled(lambda v, t, a: resample(v, t, a, check=True))
        function(values, times, at)
        with pytest.raises(ValueError, match="^times: expected non-decreasing timestamps"):
            function(values, times.flip(1) + torch.arange(6.0).flip(0), at)


def test_the_operators_keep_torchs_rules():
    values, times, at = draw()
    values.requires_grad_()
    resample(values, times, at)
    options = "clamp", 0.0, False, "best", False
    check = torch.library.opcheck
    check(torch.ops.penstock.resample.default,
          ([values], [times], [None], [None], [0, 0, 0], at, True, *options))
    check(torch.ops.penstock.resample_out.default,
          ([values.detach()], [times], [None], [None], [0, 0, 0], at,
           torch.zeros(3, 9, 4, dtype=torch.float64), None, *options))
    check(torch.ops.penstock.resample_gradient.default,
          (torch.randn(3, 9, 4, dtype=torch.float64), times, torch.tensor([6, 2, 0]), None, at,
           "clamp", [3, 6, 4]))


def test_shapes_without_data():
    values, times, at = (each.to("meta") for each in draw())
    out, valid = resample(values, times, at, valid=True)
    assert out.is_meta and out.shape == (3, 9, 4) and valid.shape == (3, 9)
    ends = torch.zeros(4, dtype=torch.int64, device="meta")
    row = resample(values[0], times[0], at, offsets=ends)
    assert row.shape == (3, 9, 4)


@pytest.mark.parametrize("call, says", [
    (lambda v, t, a: resample(v, t.numpy(), a),
     "^times: expected a torch tensor, as values is one, given ndarray"),
    (lambda v, t, a: resample(v, t, a.numpy()), "^at: expected a torch tensor, as values is one"),
    (lambda v, t, a: resample(v, [0.0] * 6, a), "^times: expected a torch tensor, .*given list"),
    (lambda v, t, a: resample(v, t, [0.5]), "^at: expected a torch tensor, .*given list"),
    (lambda v, t, a: resample(v, t.requires_grad_(), a),
     "^times: expected a tensor that does not require a gradient"),
    (lambda v, t, a: resample(v.requires_grad_(), t, a, out=torch.empty(3, 9, 4).double()),
     "^out: expected None, as values requires a gradient"),
    (lambda v, t, a: resample(v.requires_grad_(), t, a, stream=1), "^stream: expected None"),
    (lambda v, t, a: resample(v, t, a.float()),
     "^at: expected elements of type f64, the type of times"),
    (lambda v, t, a: resample(v.to_sparse(), t, a),
     "^values: expected an array that its library shares"),
    (lambda v, t, a: resample(v, t, a, lengths=torch.tensor([0, 7, 1])), "^lengths: .*given 7 at"),
    (lambda v, t, a: resample(v, t, a, out=torch.empty(3, 9, 1).double().expand(3, 9, 4)),
     "^out: expected contiguous columns"),
])
def test_errors_name_the_argument(call, says):
    with pytest.raises(ValueError, match=says):
        call(*draw())


def test_importing_torch_first_or_last_is_the_same(python):
    python("""
        import numpy, penstock, sys
        times = numpy.arange(3.0)
        penstock.resample(times[:, None], times, times)
        assert "torch" not in sys.modules
        import torch
        times = torch.arange(3.0)
        assert torch.equal(penstock.resample(times[:, None], times, times)[:, 0], times)
    """)


def test_with_a_torch_that_has_no_functions_of_c(python):
    python("""
        import torch
        if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            del torch.Tensor.__dlpack_c_exchange_api__
        import penstock
        times = torch.arange(3.0)
        values = times[:, None].clone().requires_grad_()
        out = penstock.resample(values, times, times[:2] + 0.5)
        out.sum().backward()
        assert out.ravel().tolist() == [0.5, 1.5]
        assert values.grad.ravel().tolist() == [0.5, 1.0, 0.5]
        with torch.no_grad():
            assert torch.equal(penstock.resample(values, times, times), values)
    """)
