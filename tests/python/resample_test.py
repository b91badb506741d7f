"""resample() on the CPU, against a reference in more digits; of 16 bits in the very same.

gpu_resample_test.py has a GPU, resample_torch_test.py has torch.
"""

import math
from fractions import Fraction

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import penstock
from penstock import Sensor, resample

FLOATS = [np.float64, np.float32, np.float16]
SHORT = [np.float16, "bf16"]
INTEGERS = [np.int64, np.int32, np.uint8, np.bool_]
HOLDS = ["nearest", "previous", "next"]


def slerp(x, y, w):
    """On the shorter arc, of quaternions side by side."""
    out = np.empty_like(x)
    for i in range(0, len(x), 4):
        p, q = x[i:i + 4], y[i:i + 4]
        p, q = p / np.linalg.norm(p), q / np.linalg.norm(q)
        q = -q if p @ q < 0 else q
        across = q - (p @ q) * p
        length = np.linalg.norm(across)
        angle = math.atan2(length, p @ q)
        side = across / length if length > 0 else across
        out[i:i + 4] = math.cos(w * angle) * p + math.sin(w * angle) * side
    return out


def bf16(x):
    """The f32 that are the nearest bf16, which NumPy has not; of two the even one."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return np.where(np.isnan(x), np.float32(np.nan), rounded.view(np.float32))


def of_penstock(x):
    """f32 that are bf16, as such."""
    room = penstock.empty(x.shape, "bf16", device="cpu")
    penstock.copy(room, (x.view(np.uint32) >> 16).astype(np.uint16))
    return room


def of_numpy(array):
    """bf16 as f32."""
    bits = np.empty(array.shape, np.uint16)
    penstock.copy(bits, array)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def weight(a, b, t, number):
    if isinstance(t, np.integer):  # differences are exact
        return number(int(t) - int(a)) / number(int(b) - int(a))
    return (number(t) - number(a)) / (number(b) - number(a))


def linear(x, y, a, b, t, dtype):
    """(row, how far a result may be from it).

    16-bit types have to be equal: f32 throughout, the product and the sum rounded as one.

    f64 may be 4 ulp off, of w (y - x) or of the sum, whichever is larger; of the sum alone is no
    measure, as it may be nearly 0. Behind w (y - x) are four roundings: of two differences of
    times, of their quotient and of y - x. Each is half an ulp of what it rounds, which makes 3.5 of
    the product at most; and the sum is rounded by half a one. f32 is computed like that, and its
    own rounding, by half an ulp of the result, comes last.
    """
    if dtype in SHORT:
        x, y = x.astype(np.float32), y.astype(np.float32)
        w = np.float32(weight(a, b, t, np.float64))
        row = (np.longdouble(w) * (y - x) + x).astype(np.float32)  # the product is exact
        return bf16(row) if dtype == "bf16" else row.astype(dtype), 0
    part = weight(a, b, t, np.longdouble) * (y.astype(np.longdouble) - x)
    row = x + part
    far = 4 * np.spacing(np.maximum(abs(part), abs(row)).astype(np.float64))
    return row, far if dtype == np.float64 else far + np.spacing(abs(row).astype(np.float32)) / 2


def blend(mode, x, y, a, b, t, dtype):
    if mode == "linear":
        return linear(x, y, a, b, t, dtype)
    if mode == "slerp":
        return slerp(x.astype(np.float64), y.astype(np.float64), weight(a, b, t, np.float64)), 0
    if mode == "nearest":
        a, b, t = (Fraction(each.item()) for each in (a, b, t))
        return x if t - a <= b - t else y, 0
    return x if mode == "previous" else y, 0


def one(values, times, t, mode, outside, fill, dtype):
    """(row, how far from it, valid) of one episode at one time; no two samples have one time."""
    if not len(times) or t != t:
        return fill if values.dtype.kind != "f" else np.nan, 0, False
    valid = bool(times[0] <= t <= times[-1])
    if t in times:
        return values[list(times).index(t)], 0, valid
    upper = int(np.searchsorted(times, t))
    if not valid:
        if outside == "fill":
            return fill, 0, False
        if outside == "clamp" or mode in HOLDS or len(times) == 1:
            return values[0 if t < times[0] else -1], 0, False
        upper = min(max(upper, 1), len(times) - 1)
    return *blend(mode, values[upper - 1], values[upper], times[upper - 1], times[upper], t,
                  dtype), valid


def reference(values, times, at, *, mode="linear", outside="clamp", fill=0.0, lengths=None,
              dtype=None):
    """(out, how far from it, valid) of (B, S, D), (B, S), (B, T). `dtype`: that of bf16 as f32."""
    dtype = dtype or values.dtype.type
    out = np.empty((*at.shape, values.shape[2]),
                   np.longdouble if values.dtype.kind == "f" else dtype)
    far, valid = np.zeros(out.shape), np.empty(at.shape, bool)
    for b in range(len(values)):
        count = values.shape[1] if lengths is None else lengths[b]
        for t in range(at.shape[1]):
            out[b, t], far[b, t], valid[b, t] = one(values[b, :count], times[b, :count], at[b, t],
                                                    mode, outside, fill, dtype)
    return out, far, valid


def draw(seed, episodes, samples, targets, columns, dtype=np.float64, time=np.float64, *, spread=0,
         unit=1):
    """(values, times, at), with hits, times outside, and a NaN where it can be.

    Floating-point values differ by up to `spread` powers of two either way. A `unit` that is no
    power of two makes times whose differences are rounded.
    """
    rng = np.random.default_rng(seed)
    shape = episodes, samples, columns
    if np.dtype(dtype).kind in "iu":
        values = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    elif dtype == np.bool_:
        values = rng.integers(0, 2, shape).astype(dtype)
    else:
        powers = rng.integers(-spread, spread, shape, endpoint=True)
        values = np.ldexp(rng.normal(0, 3, shape), powers).astype(dtype)
    grid = np.tile(np.arange(2 * samples), (episodes, 1))
    times = np.sort(rng.permuted(grid, axis=1)[:, :samples], 1) * 4
    at = rng.integers(-8, 8 * samples + 12, (episodes, targets))
    if time == np.int64:
        far = 1_700_000_000_000_000_000
        return values, times + far, at + far
    times, at = (times * unit).astype(time), (at * unit).astype(time)
    if targets > 2:
        at[:, 2] = np.nan
    return values, times, at


def check(out, wanted, far):
    same = (out == wanted) | ((out != out) & (wanted != wanted))
    if out.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # of infinities
            same |= abs(out.astype(np.longdouble) - wanted) <= far
    assert same.all(), (out[~same], wanted[~same], far[~same])


def strided(array, how):
    """The same numbers with other strides."""
    if how == "negative":
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if how == "apart":
        room = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        room[..., ::2] = array
        return room[..., ::2]
    return np.asfortranarray(array) if how == "columns first" else array


@hypothesis.settings(max_examples=2000, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 2**32), episodes=st.integers(0, 3), samples=st.integers(0, 9),
    targets=st.integers(0, 12), columns=st.integers(1, 40),  # whole vectors, and what is left
    dtype=st.sampled_from([*FLOATS, "bf16", *INTEGERS]),
    time=st.sampled_from([np.float64, np.float32, np.int64]),
    unit=st.sampled_from([1, 0.1, math.pi]), mode=st.sampled_from(["linear"] * 3 + HOLDS),
    outside=st.sampled_from(["clamp", "fill", "extrapolate"]), ragged=st.booleans(),
    how=st.sampled_from(["plain", "negative", "apart", "columns first"]))
def test_as_the_reference(seed, episodes, samples, targets, columns, dtype, time, unit, mode,
                          outside, ragged, how):
    if mode == "linear" and dtype in INTEGERS:
        mode = "nearest"
    # Some of f16 are subnormal, and some lines leave its range.
    values, times, at = draw(seed, episodes, samples, targets, columns,
                             np.float32 if dtype == "bf16" else dtype, time, spread=12, unit=unit)
    values = bf16(values) if dtype == "bf16" else values
    lengths = np.random.default_rng(seed).integers(0, samples + 1, episodes) if ragged else None
    fill = 1.0
    with np.errstate(over="ignore"):
        wanted, far, inside = reference(values, times, at, mode=mode, outside=outside, fill=fill,
                                        lengths=lengths, dtype=dtype)

    def run(values, times, **more):
        given = of_penstock(values) if dtype == "bf16" else strided(values, how)
        out, valid = resample(given, strided(times, how), strided(at, how), mode=mode,
                              outside=outside, fill=fill, valid=True, **more)
        assert out.dtype == dtype
        return (of_numpy(out), valid.numpy()) if dtype == "bf16" else (out, valid)

    out, valid = run(values, times, lengths=lengths)
    check(out, wanted, far)
    assert (valid == inside).all()
    if ragged:
        kept = np.arange(samples) < lengths[:, None]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        row, _ = run(values[kept], times[kept], offsets=offsets)
        np.testing.assert_array_equal(row, out)


@pytest.mark.parametrize("outside", ["clamp", "fill", "extrapolate"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("order", ["xyzw", "wxyz"])
def test_slerp(order, dtype, outside):
    values, times, at = draw(3, 4, 9, 40, 8, np.float64)
    values = (values.reshape(-1, 4) / np.linalg.norm(values.reshape(-1, 4), axis=1)[:, None])
    values = values.reshape(4, 9, 8).astype(dtype)
    out = resample(values, times, at, mode="slerp", outside=outside, fill=7, quaternion=order)
    wanted, *_ = reference(values, times, at, mode="slerp", outside=outside, fill=7)
    got = out.astype(np.float64).reshape(4, 40, 2, 4)
    wanted = wanted.reshape(4, 40, 2, 4)
    sign = np.where((got * wanted).sum(-1, keepdims=True) < 0, -1, 1)
    tolerance = {np.float64: 1e-9, np.float32: 1e-5, np.float16: 5e-3}[dtype]
    np.testing.assert_allclose(got, sign * wanted, rtol=tolerance, atol=tolerance)


def test_ranges_of_columns_have_their_own_modes():
    values, times, at = draw(4, 2, 7, 30, 9)
    values[..., 1:5] /= np.linalg.norm(values[..., 1:5], axis=-1, keepdims=True)
    whole = {mode: resample(values, times, at, mode=mode) for mode in ["linear", *HOLDS]}
    turned = resample(values[..., 1:5], times, at, mode="slerp")
    wanted = np.concatenate([whole["linear"][..., :1], turned, whole["previous"][..., 5:7],
                             whole["nearest"][..., 7:]], -1)
    for ranges in ([((1, 5), "slerp"), (slice(5, 7), "previous"), (slice(-2, None), "nearest")],
                   [(slice(7, None), "nearest"), ([5, 7], "previous"), ((1, 5), "slerp", "xyzw")]):
        np.testing.assert_array_equal(resample(values, times, at, columns=ranges), wanted)


def test_sensors_side_by_side():
    one_, times_one, at = draw(5, 3, 8, 20, 2, np.float32)
    two, times_two, _ = draw(6, 3, 5, 20, 3, np.float32)
    sensors = [Sensor(one_, times_one, mode="previous"),
               Sensor(two, times_two, lengths=np.array([5, 0, 2], np.int32))]
    out, valid = resample(sensors, at=at, valid=True)
    left, left_valid = resample(one_, times_one, at, mode="previous", valid=True)
    right, right_valid = resample(sensors[1], at=at, valid=True)
    assert out.shape == (3, 20, 5) and valid.shape == (3, 20, 2) and left_valid.shape == (3, 20)
    np.testing.assert_array_equal(out, np.concatenate([left, right], -1))
    np.testing.assert_array_equal(valid, np.stack([left_valid, right_valid], -1))


def test_an_episode_alone():
    values, times, at = draw(7, 1, 6, 9, 3)
    wanted, inside = resample(values, times, at, valid=True)
    out, valid = resample(values[0], times[0], at[0], valid=True)
    assert out.shape == (9, 3) and valid.shape == (9,)
    np.testing.assert_array_equal(out, wanted[0])
    np.testing.assert_array_equal(valid, inside[0])
    both, valid = resample([Sensor(values[0], times[0])] * 2, at=at[0], valid=True)
    assert both.shape == (9, 6) and valid.shape == (9, 2)


def test_one_clock_and_one_row_of_times_for_all():
    values, times, at = draw(8, 3, 6, 9, 2)
    times[:], at[:] = times[0], at[0]
    wanted = resample(values, times, at)
    for t in (times[0], np.broadcast_to(times[0], times.shape)):
        for a in (at[0], np.broadcast_to(at[0], at.shape)):
            np.testing.assert_array_equal(resample(values, t, a), wanted)
    same = np.broadcast_to(values[:1], values.shape)
    np.testing.assert_array_equal(resample(same, times, at), resample(same.copy(), times, at))


def test_at_a_samples_time_it_is_that_sample():
    values = np.array([[1.0], [np.nan], [3.0], [4.0], [np.inf], [6.0]])
    times = np.array([0.0, 1.0, 2.0, 2.0, 3.0, 4.0])
    out = resample(values, times, times)
    np.testing.assert_array_equal(out.ravel(), [1, np.nan, 4, 4, np.inf, 6])  # of two the last


@pytest.mark.parametrize("time", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("outside", ["clamp", "extrapolate"])
@pytest.mark.parametrize("mode, wanted", [
    ("linear", [10, 20, 22, 25, 28, 50, 55, 58, 70, 70]),
    ("nearest", [10, 20, 20, 20, 30, 50, 50, 60, 70, 70]),
    ("previous", [10, 20, 20, 20, 20, 50, 50, 50, 70, 70]),
    ("next", [10, 20, 30, 30, 30, 50, 60, 60, 70, 70]),
])
def test_around_samples_of_one_time(mode, wanted, outside, time):
    """At that time the last counts; before it the first is the neighbour, after it the last.

    Through two of one time there is no line: nothing goes on beyond them.
    """
    times = np.array([10, 10, 40, 40, 40, 70, 70], time)
    values = np.array([10, 20, 30, 40, 50, 60, 70], np.float64)[:, None]
    at = np.array([0, 10, 16, 25, 34, 40, 55, 64, 70, 80], time)
    out, valid = resample(values, times, at, mode=mode, outside=outside, valid=True)
    np.testing.assert_array_equal(out.ravel(), wanted)
    assert valid.tolist() == [False, *[True] * 8, False]


def test_nanoseconds_are_exact():
    begin = 1_700_000_000_000_000_000
    out = resample(np.array([[0.0], [1.0]]), np.array([begin, begin + 10]),
                   np.array([begin + 3, begin + 9]))
    np.testing.assert_array_equal(out.ravel(), [0.3, 0.9])


def test_into_given_arrays():
    values, times, at = draw(9, 2, 6, 9, 3, np.float32)
    wanted, inside = resample(values, times, at, valid=True)
    room = np.full((2, 9, 8), np.nan, np.float32)
    mask = np.empty((9, 2), bool).T
    out, valid = resample(values, times, at, out=room[..., 2:5], valid=mask)
    assert valid is mask and out.base is room
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(valid, inside)
    assert np.isnan(room[..., :2]).all() and np.isnan(room[..., 5:]).all()


def test_arrays_of_penstock_make_arrays_of_penstock():
    values, times, at = draw(10, 2, 6, 9, 3, np.float32)
    room = penstock.empty(values.shape, "f32", device="cpu")
    room.numpy()[:] = values
    out, valid = resample(room, times, at, valid=True)
    assert isinstance(out, penstock.Array) and valid.dtype == "bool"
    np.testing.assert_array_equal(out.numpy(), resample(values, times, at))


class TestLists:
    """Lists are read as NumPy reads them."""

    VALUES, TIMES, AT = [[0.0], [10.0], [30.0]], [0.0, 1.0, 3.0], [0.5, 2.0, 9.0]
    WANTED = [[5.0], [20.0], [30.0]]

    @pytest.mark.parametrize("lists", ["values", "times", "at", "values times at", "values at"])
    def test_in_place_of_arrays(self, lists):
        arrays = {"values": self.VALUES, "times": self.TIMES, "at": self.AT}
        out = resample(**{name: given if name in lists.split() else np.array(given)
                          for name, given in arrays.items()})
        assert out.dtype == np.float64 and out.tolist() == self.WANTED

    def test_of_whole_numbers(self):
        out = resample([[0], [10], [30]], [0, 1, 3], self.AT)
        assert out.dtype == np.float64 and out.tolist() == self.WANTED
        out = resample([[0], [10], [30]], [0, 1, 3], [0, 2, 9], mode="previous")
        assert out.dtype == np.int64 and out.tolist() == [[0], [10], [30]]

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
    def test_times_get_the_dtype_of_the_other_times(self, dtype):
        assert resample(self.VALUES, np.array(self.TIMES, dtype), [1, 9]).tolist() == [[10.0], [30.0]]
        assert resample(self.VALUES, self.TIMES, np.array([1, 9], dtype)).tolist() == [[10.0], [30.0]]

    def test_lengths_and_offsets(self):
        padded = [[[1.0], [2.0], [3.0]], [[4.0], [0.0], [0.0]]]
        wanted = [[[1.5], [2.75]], [[4.0], [4.0]]]
        assert resample(padded, self.TIMES, [0.5, 2.5], lengths=[3, 1]).tolist() == wanted
        row = [[1.0], [2.0], [3.0], [4.0]]
        out = resample(row, [0.0, 1.0, 3.0, 0.0], [0.5, 2.5], offsets=(0, 3, 4))
        assert out.tolist() == wanted

    def test_in_sensors(self):
        camera = Sensor([[0.0], [1.0], [2.0]], self.TIMES, mode="previous", columns=[(slice(0, 1),
                                                                                    "next")])
        arm = Sensor(np.ones((2, 2)), [0, 9])
        assert resample([camera, arm], at=[1.5, 2.5]).tolist() == [[2.0, 1.0, 1.0]] * 2
        assert resample(camera, at=(1.5,)).tolist() == [[2.0]]

    def test_of_no_target_times(self):
        assert resample(self.VALUES, self.TIMES, []).shape == (0, 1)

    @pytest.mark.parametrize("call, says", [
        (lambda v, t, a: resample([[1.0], [2.0, 3.0]], t, a),
         "^values: expected an array, or a list of numbers, given a list that NumPy refuses"),
        (lambda v, t, a: resample([["a"]], t, a),
         "^values: expected an array, or a list of numbers, given a list that NumPy reads as <U1"),
        (lambda v, t, a: resample(v, ["now"] * 3, a), "^times: expected an array, or a list of"),
        (lambda v, t, a: resample(v, t, [None]), "^at: expected an array, or a list of numbers"),
        (lambda v, t, a: resample(v, np.arange(3), [1, 0.5]),
         "^at: expected whole numbers, as times has dtype int64, given 0.5"),
        (lambda v, t, a: resample(v, [0, 0.5, 2], np.arange(3)),
         "^times: expected whole numbers, as at has dtype int64, given 0.5"),
        (lambda v, t, a: resample(v, t, a, lengths=[1.5]), "^lengths: .* a list of whole numbers"),
        (lambda v, t, a: resample(v, t, a, offsets=["0"]), "^offsets: .* a list of whole numbers"),
        (lambda v, t, a: resample(v, t, 2.0), "^at: expected an array, given float"),
        (lambda v, t, a: resample(v, t, a, out=[0.0]), "^out: expected an array"),
        (lambda v, t, a: resample([1.0, 2.0], t, a), r"^values: expected \(S, D\)"),
        (lambda v, t, a: resample([Sensor(v, t), v], at=a), r"^values\[1\]: expected a Sensor"),
        (lambda v, t, a: resample([Sensor(v, t), Sensor([["a"]], t)], at=a),
         r"^sensors\[1\].values: expected an array, or a list of numbers"),
        (lambda v, t, a: resample([Sensor(v, t), Sensor(v, t, lengths=["a"])], at=a),
         r"^sensors\[1\].lengths: expected an array, or a list of whole numbers"),
    ])
    def test_errors_name_the_argument(self, call, says):
        with pytest.raises((ValueError, TypeError), match=says):
            call(np.array(self.VALUES), np.array(self.TIMES), np.array(self.AT))


def test_read_only_arrays_are_read():
    arrays = draw(11, 2, 6, 9, 3)
    for array in arrays:
        array.flags.writeable = False
    assert resample(*arrays).shape == (2, 9, 3)
    with pytest.raises(ValueError, match="^out: "):
        out = np.empty((2, 9, 3))
        out.flags.writeable = False
        resample(*arrays, out=out)


def test_from_many_threads():
    from concurrent.futures import ThreadPoolExecutor

    calls = [draw(seed, 3, 20, 50, 4) for seed in range(16)]
    wanted = [resample(*each) for each in calls]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for got, each in zip(pool.map(lambda call: resample(*call), calls), wanted):
                np.testing.assert_array_equal(got, each)


def bad(function):
    values, times, at = np.zeros((2, 4, 4)), np.tile(np.arange(4.0), (2, 1)), np.zeros((2, 3))
    return function(values, times, at)


@pytest.mark.parametrize("call, says", [
    (lambda v, t, a: resample(v, None, a), "^times: expected an array of times, given None"),
    (lambda v, t, a: resample(v, t), "^at: expected an array of times, given None"),
    (lambda v, t, a: resample(3, t, a), "^values: expected an array, given int"),
    (lambda v, t, a: resample(v, [1.0], a), "^times: expected shape"),
    (lambda v, t, a: resample(v[0, 0], t, a),
     r"^values: expected \(S, D\), \(B, S, D\), or \(N, D\)"),
    (lambda v, t, a: resample(v, t[:, :3], a), "^times: expected shape"),
    (lambda v, t, a: resample(v, t, a[:1]), "^at: expected shape"),
    (lambda v, t, a: resample(v, t, a.astype(np.float32)),
     "^at: expected elements of type f64, the type of times"),
    (lambda v, t, a: resample(v, t.astype(np.int32), a), "^times: expected elements of type f32"),
    (lambda v, t, a: resample(v, t, a, mode="cubic"),
     "^mode: expected 'linear' or .*given 'cubic'"),
    (lambda v, t, a: resample(v, t, a, quaternion="xy"), "^quaternion: expected 'xyzw' or 'wxyz'"),
    (lambda v, t, a: resample(v, t, a, outside="wrap"), "^outside: expected 'clamp'"),
    (lambda v, t, a: resample(v, t, a, kernel="fast"), "^kernel: expected 'best'"),
    (lambda v, t, a: resample(v.astype(np.int32), t, a),
     "^mode: expected nearest, previous or next"),
    (lambda v, t, a: resample(v[..., :3], t, a, mode="slerp"),
     "^mode: expected a number of columns that is a multiple of 4"),
    (lambda v, t, a: resample(v, t, a, columns=[((0, 9), "next")]),
     r"^columns\[0\]: expected a range"),
    (lambda v, t, a: resample(v, t, a, columns=[((0, 2), "next"), ((1, 3), "next")]),
     r"^columns\[1\]: expected columns that do not overlap"),
    (lambda v, t, a: resample(v, t, a, columns=[(slice(0, 4, 2), "next")]),
     r"^columns\[0\]: expected a slice without a step"),
    (lambda v, t, a: resample(v, t, a, columns=["next"]), r"^columns\[0\]: expected \(range, mode"),
    (lambda v, t, a: resample(v, t, a, columns=[((0, 2), "warp")]),
     r"^columns\[0\]: expected 'linear'"),
    (lambda v, t, a: resample(v, t, a, lengths=np.array([4, 5])),
     r"^lengths: expected lengths from 0 to 4, the number of samples, given 5 at \[1\]"),
    (lambda v, t, a: resample(v, t, a, lengths=np.array([-1, 5])),
     r"^lengths: .*given -1 at \[0\]"),
    (lambda v, t, a: resample(v, t, a, lengths=np.array([4])), "^lengths: expected shape"),
    (lambda v, t, a: resample(v, t, a, lengths=np.array([4, 4.0])), "^lengths: expected elements"),
    (lambda v, t, a: resample(v[0], t[0], a, offsets=np.array([0, 3, 2])),
     r"^offsets: expected non-decreasing offsets from 0 to 4.*given 2 at \[2\]"),
    (lambda v, t, a: resample(v[0], t[0], a, offsets=np.array([0, 3, 5])), r"^offsets: .*given 5"),
    (lambda v, t, a: resample(v[0], t[0], a, offsets=np.array([0, 4]), lengths=np.array([4])),
     "^lengths: expected no lengths when offsets are given"),
    (lambda v, t, a: resample(v, -t, a, check=True), "^times: expected non-decreasing timestamps"),
    (lambda v, t, a: resample(v, t * np.nan, a, check=True),
     "^times: expected times that are numbers"),
    (lambda v, t, a: resample(v, t, a + 9, outside="error"),
     "^at: expected target times within the timestamps, 0 to 3, given 9"),
    (lambda v, t, a: resample(v, t, a, out=np.zeros((2, 3, 5))), "^out: expected shape"),
    (lambda v, t, a: resample(v, t, a, out=np.zeros((2, 3, 4), np.float32)),
     "^out: expected elements of type f64, the type of values"),
    (lambda v, t, a: resample(v, t, a, out=v[:, :3]),
     "^out: expected memory that does not overlap values"),
    (lambda v, t, a: resample(v, t, a, valid=np.zeros((2, 3))),
     "^valid: expected elements of type bool"),
    (lambda v, t, a: resample(v.view(np.complex128), t, a), "^values: expected elements of type f64"),
    (lambda v, t, a: resample([], t, a), r"^values: expected \(S, D\)"),
    (lambda v, t, a: resample([v], t, a), r"^values: expected \(S, D\).*given \(1, 2, 4, 4\)"),
    (lambda v, t, a: resample([Sensor(v, t)], t, a), "^times: expected None, as every Sensor"),
    (lambda v, t, a: resample([Sensor(v, t)], at=a, mode="next"),
     "^mode: expected None, as every Sensor"),
    (lambda v, t, a: resample([Sensor(v, t), Sensor(v, t[:, :2])], at=a),
     r"^sensors\[1\]\.times: expected shape"),
    (lambda v, t, a: resample([Sensor(v, t), Sensor(v[:1], t[:1])], at=a),
     r"^sensors\[1\]\.values: expected 2 episodes"),
    (lambda v, t, a: resample([Sensor(v, t), Sensor(v, t, lengths=np.array([9, 0]))], at=a),
     r"^sensors\[1\]\.lengths: expected lengths from 0 to 4"),
    (lambda v, t, a: resample([Sensor(v, t)] * 9, at=a), "^sensors: expected one to 8"),
])
def test_errors_name_the_argument(call, says):
    with pytest.raises((ValueError, TypeError), match=says):
        bad(call)


def test_unsorted_times_are_an_error_only_when_asked():
    values, times, at = np.zeros((2, 4, 4)), np.tile(-np.arange(4.0), (2, 1)), np.zeros((2, 3))
    assert (resample(values, times, at) == 0).all()
