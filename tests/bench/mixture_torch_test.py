"""The parts of the benchmarks of moe and route that run on a GPU, here with torch's tensors on the CPU."""

import os
import subprocess
import sys
import types

import pytest

from penstock.bench import Absent, Context, Peer
from penstock.bench._clock import CpuClock
from penstock.bench._device_read import DeviceRead
from penstock.bench._performance import run_case
from penstock.bench._timing import Plan
from penstock.bench.mixture import decode_case, layer_case, roof, route_case
from penstock.bench.mixture.decode_case import DecodeCase
from penstock.bench.mixture.layer_case import LayerCase
from penstock.bench.mixture.load import Load
from penstock.bench.mixture.shapes import Shape
from penstock.bench.operators import moe, moe_cpu, moe_portable, route

torch = pytest.importorskip("torch", reason="torch is not installed here")

COPY = {"device_copy": 1e10}


class GpuClock(CpuClock):
    """Says that a GPU took the time of the call."""

    def gpu_us(self, run, expected_host_us):
        return self.call_time(run).call_us

    def alone_us(self, run):
        return self.call_time(run).call_us


@pytest.fixture
def gpu_context(monkeypatch):
    """A device that is said to be a GPU, whose tensors are on the CPU and whose calls are not captured."""
    monkeypatch.delenv("PEERS", raising=False)
    monkeypatch.setattr(roof, "FEWEST_TOKENS", 128)
    for module in (layer_case, route_case):
        monkeypatch.setattr(module, "Captured", lambda call: lambda *arguments: call(*arguments))
    monkeypatch.setattr(route_case, "Compiled", lambda call: call)
    monkeypatch.setattr(route_case, "has_triton", lambda: True)
    device = types.SimpleNamespace(kind="cuda", name="cpu", capabilities={"l2_bytes": 1 << 16})
    return Context(device, seed=11, quick=True)


def run(case):
    return run_case(case, case.kernels(), GpuClock(), Plan.quick(), 1 << 16, COPY)


@pytest.mark.parametrize("number", range(len(moe.QUICK)))
def test_a_layer_in_bf16_is_checked_and_timed_beside_torch(gpu_context, number):
    case = moe.operator.cases(gpu_context)[number]
    assert list(case.kernels()) == ["best", "captured", "sequential"]
    measured = run(case)
    assert measured.complaints == [] and measured.notes == []
    entry, parts = measured.entry, measured.entry["metrics"]["roof_parts_us"]
    assert set(entry["peer"]) == {"torch"} and case.params["dtype"] == "bf16"
    assert set(parts) == {"batched GEMMs", "read of the experts", "router projection"}
    assert entry["yardstick"] == roof.MEANING and entry["yardstick_us"] > parts["router projection"]
    assert entry["metrics"]["kernels"]["captured"]["enqueue_us"] > 0
    assert 0 < entry["max_error"] <= entry["tolerance"] < 0.1


def test_sonicmoe_says_what_it_needs(gpu_context):
    peer = moe.operator.cases(gpu_context)[0].peers()["SonicMoE"]
    assert isinstance(peer, Absent) and "PEERS" in peer.reason


def test_a_result_that_is_3_percent_too_large_is_wrong(gpu_context):
    case = moe.operator.cases(gpu_context)[0]

    def too_large(inputs, out):
        case.kernels()["best"](inputs, out)
        out.mul_(1.03)

    measured = run_case(case, {"too large": too_large}, GpuClock(), Plan.quick(), 1 << 16, COPY)
    assert "elements wrong" in measured.complaints[0]


def test_the_roof_by_hand(gpu_context):
    shape = Shape(tokens=256, hidden=8, width=16, experts=4, choices=2)
    case = LayerCase(gpu_context, "it", shape)
    load = Load(torch.zeros(256, 4).numpy(), torch.tensor([[0, 1]] * 255 + [[0, 2]]).numpy())
    assert load.padded_rows == 256 + 256 + 64 and load.touched == 3
    case.load = load
    combine = shape.combine_bytes(2) / 1e10 * 1e6
    times = {"batched GEMMs": 512.0, "read of the experts": 1.0, "router projection": 3.0}
    # 4 x 128 rows take 512 us, so 576 padded ones take 576 us.
    assert case.roof_of_parts(COPY, times) == pytest.approx(576 + combine + 3)
    times["batched GEMMs"] = 0.001
    # 3 of 4 experts, at the measured rate of 3072 bytes per us; then at that of a copy, 10000.
    times["read of the experts"] = 1.0
    slow = {"device_copy": 1e9}
    assert case.roof_of_parts(slow, times) == pytest.approx(0.75 + 10 * combine + 3)
    assert case.roof_of_parts(COPY, times) == pytest.approx(3 * 768 / 1e4 + combine + 3)


def test_small_batches_are_compared_with_gemms_of_large_ones(gpu_context):
    gemms = LayerCase(gpu_context, "it", Shape(4, 8, 16, 6, 2)).roof_parts()["batched GEMMs"]
    assert gemms.rows == -(-128 * 2 // 6)


@pytest.mark.parametrize("number", range(len(route.CASES)))
def test_routing_is_checked_and_timed_beside_torch(gpu_context, number):
    case = route.operator.cases(gpu_context)[number]
    assert list(case.kernels()) == ["best", "captured"]
    assert all(isinstance(peer, Peer) for peer in case.peers().values())
    measured = run(case)
    assert measured.complaints == [] and measured.notes == []
    assert set(measured.entry["peer"]) == {"torch", "torch.compile"}


def test_few_tokens_stand_on_a_floor(gpu_context, monkeypatch):
    monkeypatch.setattr(decode_case, "Captured", lambda call: lambda *arguments: call(*arguments))
    case = DecodeCase(gpu_context, "it", Shape(3, 64, 40, 8, 2))
    assert list(case.kernels()) == ["best", "captured", decode_case.GIVEN] and list(case.engines()) == [decode_case.READ]
    measured = run(case)
    assert measured.complaints == [] and measured.entry is not None
    engines = measured.entry["metrics"]["engines_us"]
    assert measured.entry["floor_us"] == engines["read of the experts"] > 0
    assert set(measured.entry["peer"]) == {"torch"}


def test_a_plain_read_touches_every_byte_of_buffers_that_exceed_the_cache():
    read = DeviceRead(4000, "cpu", cache=10_000)
    first = read(None, None)
    buffers = [next(read._buffers) for _ in range(16)]
    different = {id(buffer) for buffer in buffers}
    assert len(different) * 4000 > 3 * 10_000 and all(buffer.numel() == 1000 for buffer in buffers)
    assert first in [buffer.sum() for buffer in buffers]


def test_torch_is_the_only_peer_of_the_portable_kernel(gpu_context):
    case = moe_portable.operator.cases(gpu_context)[0]
    assert list(case.peers()) == ["torch"] and list(case.kernels()) == ["portable", "best"]


@pytest.mark.parametrize("number", range(6))
def test_on_the_cpu_ours_is_timed_beside_torch(context, number):
    case = moe_cpu.operator.cases(context)[number]
    assert (case.make_inputs(0)["gate_up"].stride(2) != 1) == case.params["transposed"]
    measured = run_case(case, case.kernels(), CpuClock(), Plan.quick(), 1 << 16, {"host_copy": 1e10})
    assert measured.complaints == [] and "left_out" not in measured.entry["metrics"]
    grouped = isinstance(case.peers()["torch, grouped"], Peer)
    assert set(measured.entry["peer"]) == {"torch, loop"} | ({"torch, grouped"} if grouped else set())
    assert torch.get_num_threads() == case.params["threads"]
    limit = 0.1 if case.params["dtype"] == "bf16" else 1e-4
    assert 0 < measured.entry["max_error"] <= measured.entry["tolerance"] < limit


TRITON = """
import torch
from penstock.bench._triton_read import SUMS

buffer = torch.randn(50_001)
for add_up in SUMS.values():
    sums = add_up(buffer)
    assert len(sums) > 1 and torch.isfinite(sums).all()
    assert abs(float(sums.double().sum() - buffer.double().sum())) < 1e-2
"""


def test_a_read_in_triton_touches_every_number():
    pytest.importorskip("triton", reason="triton is not installed here")
    subprocess.run([sys.executable, "-c", TRITON], check=True, timeout=300,
                   env=os.environ | {"TRITON_INTERPRET": "1"})
