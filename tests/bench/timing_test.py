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

    def synchronize(self):
        pass

    def call_time(self, run):
        run()
        return CallTime(host_us=5.0, call_us=20.0)

    def gpu_us(self, run, expected_host_us):
        self.expected.append(expected_host_us)
        if self.gpu is not None:
            run()
        return self.gpu

    def alone_us(self, run):
        run()
        return self.gpu + 4


def run_order(clock, plan):
    order = []
    runs = {name: (lambda name=name: order.append(name)) for name in "AB"}
    samples = measure(runs, clock, plan, sleep=lambda seconds: order.append(seconds))
    return "".join("-" if step == plan.rest_seconds else step for step in order), samples


def test_ours_and_theirs_run_by_turns_under_the_same_rest():
    order, samples = run_order(ToldClock(), Plan(warm_up=2, samples=3, rest_seconds=0.25,
                                                 sustained_seconds=0))
    assert order == "AABB" + "A-B-" * 3 + "AAABBB" * 3
    assert len(samples["A"].call_us) == len(samples["B"].call_us) == 3


def test_on_a_gpu_each_turn_is_timed_by_every_clock():
    clock = ToldClock(gpu=9.0)
    order, samples = run_order(clock, Plan(warm_up=1, samples=2, rest_seconds=0.25,
                                           sustained_seconds=0, enqueued=2))
    assert order == "AB" + "A-A-A-B-B-B-" * 2 + "AAABBB" * 3 + "AABB" * 3
    assert samples["A"].gpu_us == [9.0, 9.0] and samples["A"].judged_us == 9.0
    assert samples["A"].alone_us == [13.0, 13.0]
    assert samples["A"].enqueue_us == 2.5  # 5 for two calls
    assert clock.expected == [5.0] * 4  # what the stream has to be held back for


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
