"""The order of calls, the figures made of them, and the buffers they use."""

import numpy
import pytest

from penstock.bench._arrays import total_bytes
from penstock.bench._clock import CallTime, Clock
from penstock.bench._rotation import MOST_SETS, Rotation, cache_bytes, sets_needed
from penstock.bench._timing import Plan, Samples, measure, percentile

from conftest import Doubling


class ToldClock(Clock):
    """Says what happened, and that every call took as long as it was told."""

    def __init__(self, gpu=None):
        self.gpu = gpu
        self.expected = []
        self.enqueued = []

    def synchronize(self):
        pass

    def call_time(self, run):
        run()
        return CallTime(host_us=5.0, call_us=20.0)

    def enqueue_us(self, run, calls):
        self.enqueued.append(calls)
        for _ in range(calls):
            run()
        return 2.5

    def gpu_us(self, run, expected_host_us):
        self.expected.append(expected_host_us)
        if self.gpu is not None:
            run()
        return self.gpu

    def alone_us(self, run):
        run()
        return self.gpu + 4


def run_order(clock, plan, names="AB"):
    """The calls and pauses of a measurement, and its samples."""
    order = []
    runs = {name: (lambda name=name: order.append(name)) for name in names}
    samples = measure(runs, clock, plan, sleep=lambda seconds: order.append("-"))
    return "".join(order), samples


def in_rounds(order, *lengths):
    """The whole order, cut into pieces of these lengths."""
    pieces, at = [], 0
    for length in lengths:
        pieces.append(order[at:at + length])
        at += length
    assert at == len(order), order
    return pieces


def test_ours_and_theirs_run_by_turns():
    order, samples = run_order(ToldClock(), Plan(warm_up=2, samples=3, sustained_seconds=0))
    warm_up, *rounds = in_rounds(order, 4, *[4] * 3, *[8] * 3)
    assert warm_up == "AABB"
    assert set(rounds[:3]) <= {"A-B-", "B-A-"}
    assert set(rounds[3:]) <= {"AAA-BBB-", "BBB-AAA-"}
    assert len(samples["A"].call_us) == len(samples["B"].call_us) == 3


def test_on_a_gpu_each_turn_is_timed_by_every_clock():
    clock = ToldClock(gpu=9.0)
    order, samples = run_order(clock, Plan(warm_up=1, samples=2, sustained_seconds=0, enqueued=2))
    warm_up, *rounds = in_rounds(order, 2, *[12] * 2, *[8] * 3, *[4] * 3)
    assert warm_up == "AB"
    assert set(rounds[:2]) <= {"A-A-A-B-B-B-", "B-B-B-A-A-A-"}
    assert set(rounds[2:5]) <= {"AAA-BBB-", "BBB-AAA-"} and set(rounds[5:]) <= {"AABB", "BBAA"}
    assert samples["A"].gpu_us == [9.0, 9.0] and samples["A"].judged_us == 9.0
    assert samples["A"].alone_us == [13.0, 13.0]
    assert samples["A"].enqueue_us == 2.5
    assert clock.expected == [5.0] * 4  # what the stream has to be held back for


def test_nobody_always_runs_after_the_same_neighbour():
    rounds = 60
    order, _ = run_order(ToldClock(), Plan(warm_up=0, samples=rounds, sustained_seconds=0), "ABC")
    calls = order.replace("-", "")[:3 * rounds]
    pieces = [calls[at:at + 3] for at in range(0, len(calls), 3)]
    assert all(sorted(piece) == list("ABC") for piece in pieces)
    for name in "ABC":
        before = [calls[at - 1] for at in range(1, len(calls)) if calls[at] == name]
        assert set(before) == set("ABC")
        assert max(before.count(other) for other in "ABC") < 0.6 * rounds
        assert 0.2 * rounds < sum(piece[0] == name for piece in pieces) < 0.5 * rounds


def test_back_to_back_blocks_change_their_order_too():
    plan = Plan(warm_up=0, samples=1, sustained_seconds=0, enqueued=2)
    order, _ = run_order(ToldClock(gpu=9.0), plan, "ABCDEFGH")
    calls = order.replace("-", "")[3 * 8:]
    sustained = [calls[at:at + 24:3] for at in range(0, 3 * 24, 24)]
    enqueued = [calls[at:at + 16:2] for at in range(3 * 24, len(calls), 16)]
    assert len(set(sustained)) == len(set(enqueued)) == 3
    assert all(sorted(turn) == list("ABCDEFGH") for turn in sustained + enqueued)


@pytest.mark.parametrize("gpu_us, most, calls", [(10.0, 200, 200), (1250.0, 200, 200), (5000.0, 200, 50),
                                                 (2e4, 200, 30), (2e4, 20, 20)])
def test_long_calls_are_enqueued_often_enough(gpu_us, most, calls):
    """Whatever time is spent on other back-to-back calls."""
    clock = ToldClock(gpu=gpu_us)
    run_order(clock, Plan(warm_up=0, samples=1, sustained_seconds=0, enqueued=most), "A")
    assert clock.enqueued == [calls] * 3


def test_the_order_is_the_same_in_every_run():
    plan = Plan(warm_up=0, samples=20, sustained_seconds=0)
    assert run_order(ToldClock(gpu=9.0), plan)[0] == run_order(ToldClock(gpu=9.0), plan)[0]


@pytest.mark.parametrize("call_us, seconds", [(1, 0.001), (1999, 0.001), (6000, 0.003),
                                              (15_000, 0.0075), (1e6, 0.02)])
def test_the_pause_grows_with_the_call_within_bounds(call_us, seconds):
    plan = Plan(rest_share=0.5, rest_seconds=0.001, most_rest_seconds=0.02)
    assert plan.rest_after(call_us) == pytest.approx(seconds)
    assert Plan.quick().rest_after(call_us) == 0


def test_the_pause_is_that_of_the_call_before():
    class Slow(ToldClock):
        def call_time(self, run):
            return CallTime(host_us=5.0, call_us=8000.0)

    pauses = []
    plan = Plan(warm_up=0, samples=1, rest_share=0.5, sustained_seconds=0, enqueued=1)
    measure({"A": lambda: None}, Slow(gpu=4000.0), plan, sleep=pauses.append)
    assert pauses[:3] == pytest.approx([0.004, 0.002, 0.002002])


def test_a_slow_case_has_fewer_samples():
    _, samples = run_order(ToldClock(), Plan(warm_up=0, samples=1000, seconds=0,
                                             sustained_seconds=0))
    assert len(samples["A"].call_us) == 5


def test_medians_and_percentiles():
    told = Samples(call_us=[4, 1, 100, 2, 3], host_us=[1, 1, 1, 1, 1]).summary()
    assert told["call_us"] == 3 and told["call_us_p10"] == 1.4 and told["call_us_p90"] == 61.6
    assert told["host_us"] == 1 and told["samples"] == 5
    assert "gpu_us" not in told


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 1])
def test_percentiles_are_numpys(share):
    values = list(numpy.random.default_rng(3).random(17))
    assert percentile(values, share) == pytest.approx(numpy.quantile(values, share))


@pytest.mark.parametrize("set_bytes", [1000, 4096, 99_999, 3 << 20, 60 << 20, 1 << 30])
def test_sets_exceed_the_cache_three_times(set_bytes):
    cache = 1 << 20
    assert sets_needed(set_bytes, cache) * set_bytes > 3 * cache or set_bytes * MOST_SETS <= 3 * cache


def test_inputs_and_outputs_count_and_shared_ones_once(context):
    weights, out = numpy.zeros(100, "f4"), numpy.zeros(10, "f8")
    assert total_bytes([{"w": weights, "n": 3}, (weights, [out])]) == 480


def test_every_set_is_another_and_all_are_used_in_turn(context):
    cache = 100_000
    rotation = Rotation(Doubling(context), cache)
    assert rotation.bytes == len(rotation) * 8000 > 3 * cache and rotation.exceeds_the_cache
    seen, memory = [], set()

    def call(x, out):
        seen.append(float(x[0]))
        memory.add(out.ctypes.data)

    for _ in range(2 * len(rotation)):
        rotation.call(call)
    assert len(set(seen)) == len(memory) == len(rotation)
    assert seen[:len(rotation)] == seen[len(rotation):]


def test_a_case_may_ask_for_more_sets(context):
    case = Doubling(context)
    case.fewest_sets = 4
    assert len(Rotation(case, 0)) == 4 and len(Rotation(case, 100_000)) > 4


def test_a_call_makes_what_it_keeps_for_every_set_beforehand(context):
    rotation = Rotation(Doubling(context), 100_000)
    made = []

    class Keeping:
        def __call__(self, x, out):
            raise AssertionError("not yet")

        def prepare(self, x, out):
            made.append(out.ctypes.data)

    rotation.prepare(Keeping())
    rotation.prepare(lambda x, out: made.append("called"))
    assert len(set(made)) == len(made) == len(rotation)


def test_tiny_cases_say_that_they_stay_in_the_cache(context):
    rotation = Rotation(Doubling(context, elements=1), 1 << 30)
    assert len(rotation) == MOST_SETS and not rotation.exceeds_the_cache


def test_a_cpu_has_a_cache(context):
    assert cache_bytes(context.device) >= context.device.capabilities["l2_bytes"] > 0
