"""The benchmark of resample: its cases, the bytes it counts, and who it is compared with."""

import json
import os
import subprocess
import sys
import types

import numpy
import pytest

from penstock.bench import Absent, Context, Peer, Yardstick
from penstock.bench.operators import resample as operator
from penstock.bench.resampling import batch_case, sensors_case
from penstock.bench.resampling.batch_case import BatchCase, Shape
from penstock.bench.resampling.sensors_case import SIGNALS, SensorsCase
from penstock.bench.resampling.traffic import held, place, sectors

TIMES = numpy.array([0, 1, 2, 3, 3, 5], "f4")


@pytest.fixture
def gpu_context(monkeypatch):
    """A GPU and a torch that are only said to be there."""
    torch = types.ModuleType("torch")
    torch.__version__, torch.version = "2.0", types.SimpleNamespace(cuda="13.0")
    monkeypatch.setitem(sys.modules, "torch", torch)
    device = types.SimpleNamespace(kind="cuda", name="cuda:0", capabilities={"l2_bytes": 1 << 20})
    return Context(device, seed=7)


def test_places_are_between_neighbours():
    index, weight = place(TIMES, numpy.array([-1, 0, 0.25, 3, 4, 9], "f4"))
    assert index.tolist() == [0, 0, 0, 4, 4, 4]
    assert weight.tolist() == [0, 0, 0.25, 0, 0.5, 1]
    assert held((index, weight))[1].tolist() == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("at, row_bytes, expected", [
    ([0.5], 64, 4),  # two rows of two sectors
    ([0.5, 0.75, 1.5], 64, 6),  # rows 0 to 2, each once
    ([1.0], 64, 2),  # a sample's own time needs no neighbour
    ([-5.0, 9.0], 64, 4),  # the first and the last row
    ([0.5], 12, 1),  # bytes 0 to 23
    ([2.5], 12, 2),  # rows 2 and 3: bytes 24 to 47
    ([0.0, 9.0], 12, 3),  # bytes 0 to 11, and 60 to 71
    ([0.0, 1.0, 2.0], 4, 1),  # many rows to a sector
])
def test_sectors_by_hand(at, row_bytes, expected):
    assert sectors([place(TIMES, numpy.array(at, "f4"))], [0], row_bytes) == expected


def test_sectors_of_episodes_that_meet_count_once():
    first, last = (place(TIMES, numpy.array([at], "f4")) for at in (9.0, 0.0))
    # Rows 5 and 6 of 12 bytes: 60 to 71 and 72 to 83, of sectors 1 and 2.
    assert sectors([first, last], [0, 6], 12) == 2
    assert sectors([first, last], [0, 60], 12) == 2 + 1


def test_a_case_counts_its_bytes(context, monkeypatch):
    monkeypatch.setattr(BatchCase, "_draw", staticmethod(lambda random, count, even: TIMES))
    monkeypatch.setattr(BatchCase, "_clock", lambda self, random, times, even: numpy.array(
        [0.5, 2.0, 9.0], "f4"))
    case = BatchCase(context, "it", Shape(2, 6, 3, 16, "f32"), True)
    # Rows 0, 1, 2 and 5 of each episode, of 64 bytes; 6 times and 3 wanted ones; 3 results.
    assert case.bytes == 2 * (4 * 64 + 4 * (6 + 3) + 3 * 64)


def test_it_is_right(bench):
    code, out, err = bench("resample", "--mode", "correctness", "--device", "cpu", "--quick")
    assert code == 0, err
    assert out.count(" right ") == 2 * 4 + 3


def test_a_single_run_calls_the_kernel_that_was_named(bench, monkeypatch):
    calls = []
    real = batch_case.resample
    for module in (batch_case, sensors_case):
        monkeypatch.setattr(module, "resample",
                            lambda *args, **more: (calls.append(args), real(*args, **more)))
    for case, kernel, each in (("small, regular times", "best", 1),
                               ("ragged, random times", "best", 1),
                               ("sensors", "best", 1), ("sensors", "separate", len(SIGNALS))):
        calls.clear()
        done = bench("resample", "--mode", "single_run", "--kernel", kernel, "--case", case,
                     "--device", "cpu", "--quick", "--iterations", 2, "--warm-up", 1)
        assert done == (0, f"resample: {case}: {kernel}: 2 calls on cpu\n", "")
        assert len(calls) == 3 * each


@pytest.mark.parametrize("mode, known", [("single_run", "best, numpy"),
                                         ("correctness", "best, numpy"), ("performance", "best")])
def test_a_kernel_that_is_not_there_is_refused(bench, mode, known):
    code, out, err = bench("resample", "--mode", mode, "--kernel", "fast", "--device", "cpu",
                           "--quick")
    assert code == 2 and out == ""
    assert err == (f"penstock: error: --kernel: expected one of {known}, given 'fast' "
                   "(see: penstock bench --help)\n")


def test_every_shape_comes_with_regular_and_random_times(context):
    names = [case.name for case in operator.operator.cases(context)]
    assert names == [f"{shape}, {times} times" for shape in ("small", "ragged")
                     for times in ("regular", "random")] + ["sensors"]
    assert list(operator.SHAPES) == ["small", "medium", "narrow", "large", "long", "tiny", "f32",
                                     "joints", "very-long", "ragged"]


def test_only_ragged_episodes_are_called_by_offsets(context, monkeypatch):
    calls = {}
    monkeypatch.setattr(batch_case, "resample", lambda values, times, at, **more: calls.update(
        {name: (values.shape, times.shape, at.shape, sorted(more))}))
    for name, ragged in (("dense", False), ("ragged", True)):
        case = BatchCase(context, name, Shape(3, 60, 5, 4, "f32", ragged), True)
        inputs = case.make_inputs(0)
        case.kernels()["best"](inputs, case.make_outputs(inputs))
    assert calls["dense"] == ((3, 60, 4), (3, 60), (3, 5), ["out"])
    values, times, at, more = calls["ragged"]
    assert values == (*times, 4) and at == (3, 5) and more == ["offsets", "out"]


def test_sensors_are_as_large_and_as_small_as_they_are_to_be(gpu_context):
    large, small = (SensorsCase(gpu_context, name, *size)
                    for name, size in operator.SENSORS.items())
    assert large.bytes >= 100e6
    rates = {name: signal.rate for name, signal in SIGNALS.items()}
    assert rates == {"tactile": 150, "frame": 30, "joints": 100, "imu": 200}
    episodes, seconds = small.params["episodes"], small.params["seconds"]
    assert all(4 * episodes * seconds * signal.rate * (signal.columns + 1) <= 2e6
               for signal in SIGNALS.values())
    assert list(small.kernels()) == ["best", "captured", "separate"]
    assert isinstance(small.peers()["cudaMemcpy, whole pages"], Yardstick)


def test_sensors_are_one_call_or_four(context, monkeypatch):
    calls = []
    real = sensors_case.resample
    monkeypatch.setattr(sensors_case, "resample",
                        lambda *args, **more: (calls.append(args), real(*args, **more)))
    case = SensorsCase(context, "sensors", 2, 1)
    inputs = case.make_inputs(0)
    answers = []
    for name, count in (("best", 1), ("separate", 4)):
        calls.clear()
        answers.append(case.make_outputs(inputs))
        case.kernels()[name](inputs, answers[-1])
        assert len(calls) == count
    assert (answers[0] == answers[1]).all()


def test_the_file_has_what_a_run_measured(bench, tmp_path):
    code, _, err = bench("resample", "--device", "cpu", "--quick", "--case", "sensors", "--output",
                         "r.json")
    assert code == 0, err
    case, = json.loads((tmp_path / "r.json").read_text())["cases"]
    assert case["params"]["hz"]["tactile"] == 150 and set(case["peer"]) == {"numpy"}
    assert case["metrics"]["kernel"] == "best"
    assert set(case["metrics"]["kernels"]) == {"separate"}


def test_on_a_gpu_the_peers_are_named_or_say_why_they_are_absent(gpu_context, monkeypatch):
    monkeypatch.setattr(batch_case, "has_triton", lambda: False)
    monkeypatch.setattr(BatchCase, "_as_torch", lambda self: lambda inputs, out: None)
    case = BatchCase(gpu_context, "tiny", operator.SHAPES["tiny"], True)
    peers = case.peers()
    assert list(case.kernels()) == ["best", "captured"] and case.params["dtype"] == "bf16"
    assert list(peers) == ["cudaMemcpy, whole pages", "torch", "torch.compile", "triton",
                           "baseline"]
    assert peers["cudaMemcpy, whole pages"].version == "CUDA 13.0" and type(peers["torch"]) is Peer
    for name in ("torch.compile", "triton", "baseline"):
        assert peers[name] == Absent("needs triton: pip install triton")
    assert case.peers() is peers  # what they compiled and captured is kept


TRITON = """
import numpy, torch
import penstock
from penstock.bench import Context
from penstock.bench.resampling import triton_peer
from penstock.bench.resampling.batch_case import BatchCase, Shape

context = Context(penstock.Device("cpu"), seed=7)
for shape in (Shape(3, 50, 32, 16), Shape(2, 100, 50, 14), Shape(3, 60, 33, 7, ragged=True),
              Shape(2, 70, 20, 256)):
    for even in (True, False):
        case = BatchCase(context, "it", shape, even)
        inputs = case.make_inputs(0)
        wanted = case.reference(inputs)
        tensors = tuple(torch.from_numpy(array) for array in inputs)
        out = torch.full(case.result, torch.nan)

        def check():
            assert numpy.abs(out.numpy() - wanted).max() <= case.peer_tolerance
            out.fill_(torch.nan)

        triton_peer.baseline(shape.samples, tensors, out)
        check()
        episodes, targets, columns = case.result
        for block, width in ((8, 16), (16, 64)):
            grid = (-(-targets // block), episodes)
            triton_peer._tuned.fn[grid](**triton_peer._shared(shape.samples, tensors, out),
                                        episodes=episodes, TARGETS=block, WIDTH=width)
            check()
"""


def test_what_is_written_in_triton_is_right(torch):
    pytest.importorskip("triton", reason="triton is not installed here")
    subprocess.run([sys.executable, "-c", TRITON], check=True, timeout=300,
                   env=os.environ | {"TRITON_INTERPRET": "1"})


def test_torch_answers_the_same(context, torch):
    for ragged in (False, True):
        case = BatchCase(context, "it", Shape(3, 60, 33, 7, "f32", ragged), False)
        inputs = case.make_inputs(0)
        out = torch.full(case.result, torch.nan)
        case._as_torch()(tuple(torch.from_numpy(array) for array in inputs), out)
        assert numpy.abs(out.numpy() - case.reference(inputs)).max() <= case.peer_tolerance


def test_a_block_of_triton_is_not_too_large_for_its_threads(torch):
    pytest.importorskip("triton", reason="triton is not installed here")
    from penstock.bench.resampling import triton_peer

    for columns in (14, 16, 32, 64, 128, 256, 512):
        kept = triton_peer._sensible(triton_peer._candidates(), {}, COLUMNS=columns)
        assert 8 <= len(kept) <= 16
        assert all(config.kwargs["WIDTH"] <= 2 * columns for config in kept)
