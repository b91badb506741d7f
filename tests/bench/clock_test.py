"""The GPU's clock over a torch that only notes what it is asked."""

import subprocess
import sys
import time
import types

import pytest

from penstock.bench import BenchError, _clock
from penstock.bench._clock import CpuClock, CudaClock


def fake_torch(calls, available=True, passed=()):
    """`passed`: whether an event has passed when it is asked; later ones have not."""
    answers = iter(passed)

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            calls.append("record")

        def synchronize(self):
            calls.append("wait")

        def query(self):
            return next(answers, False)

        def elapsed_time(self, end):
            return 0.5  # ms

    cuda = types.SimpleNamespace(
        Event=Event, is_available=lambda: available, set_device=lambda index: None,
        synchronize=lambda: calls.append("synchronize"),
        _sleep=lambda cycles: calls.append(f"sleep {cycles}"))
    return types.SimpleNamespace(cuda=cuda, __version__="2.0")


def test_the_gpu_is_held_back_until_everything_is_enqueued(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "torch", fake_torch(calls))
    clock = CudaClock(0)  # 1,000,000 cycles in 500 us: 2,000 a us
    calls.clear()
    assert clock.gpu_us(lambda: calls.append("run"), expected_host_us=40) == 500
    assert calls == ["sleep 200000", "record", "run", "record", "wait"]


def test_a_host_that_was_too_slow_is_given_more_time(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "torch", fake_torch(calls, passed=[True, True]))
    clock = CudaClock(0)
    calls.clear()
    assert clock.gpu_us(lambda: None, expected_host_us=40) == 500
    assert [each for each in calls if "sleep" in each] == [f"sleep {n}00000" for n in (2, 8, 32)]


def test_a_call_that_waits_for_its_work_is_timed_all_the_same(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", fake_torch([], passed=[True] * 100))
    assert CudaClock(0).gpu_us(lambda: None, expected_host_us=40) == 500


def test_alone_is_what_events_around_a_call_see(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "torch", fake_torch(calls))
    clock = CudaClock(0)
    calls.clear()
    assert clock.alone_us(lambda: calls.append("run")) == 500
    assert calls == ["synchronize", "record", "run", "record", "wait"]


def test_a_call_is_timed_until_its_work_is_done(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "torch", fake_torch(calls))
    clock = CudaClock(0)
    calls.clear()
    taken = clock.call_time(lambda: calls.append("run"))
    assert calls == ["synchronize", "run", "synchronize"]
    assert 0 < taken.host_us <= taken.call_us


@pytest.mark.parametrize("calls, counted", [(2, 1), (12, 6), (30, 20)])
def test_the_first_calls_in_a_row_only_wake_the_host(monkeypatch, calls, counted):
    """Each call takes a microsecond of a clock that nothing else moves, but the first take ten."""
    now = [0]
    monkeypatch.setattr(_clock, "WAKING_SECONDS", 0)
    monkeypatch.setattr(_clock.time, "perf_counter_ns", lambda: now[0])
    done = []

    def run():
        done.append("run")
        now[0] += 10_000 if len(done) <= calls - counted else 1000

    assert CpuClock().enqueue_us(run, calls) == 1
    assert len(done) == calls


def test_the_thread_is_awake_before_its_calls_count():
    begin = time.perf_counter()
    first = []
    CpuClock().enqueue_us(lambda: first.append(time.perf_counter()), 2)
    assert first[0] - begin >= _clock.WAKING_SECONDS


@pytest.mark.parametrize("torch, said", [(None, "pip install torch"),
                                         (fake_torch([], available=False), "finds no GPU")])
def test_without_torch_it_says_what_to_do(monkeypatch, torch, said):
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(BenchError, match=said):
        CudaClock(0)


def test_on_the_cpu_there_is_no_gpu_time():
    assert CpuClock().gpu_us(lambda: None, 1.0) is None
    assert CpuClock().alone_us(lambda: None) is None


def test_nothing_heavy_is_imported_before_it_is_needed():
    source = ("import sys, penstock.bench._cli; "
              "assert not {'numpy', 'torch', 'matplotlib'} & set(sys.modules)")
    assert subprocess.run([sys.executable, "-c", source]).returncode == 0
