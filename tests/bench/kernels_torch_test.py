"""The parts of the benchmarks of gemm, transform and copy that run on a GPU, here with torch on the CPU."""

import types

import pytest

from penstock.bench import Absent, Context
from penstock.bench._clock import CpuClock
from penstock.bench._performance import run_case
from penstock.bench._timing import Plan
from penstock.bench.elementwise import transform_case
from penstock.bench.operators import copy, gemm, transform
from penstock.bench.products import cublas_lt, gemm_case, large_product, torch_peer

torch = pytest.importorskip("torch", reason="torch is not installed here")

RATES = {"device_copy": 1e10, "h2d": 1e10, "d2h": 1e10}


class GpuClock(CpuClock):
    """Says that a GPU took the time of the call."""

    def gpu_us(self, run, expected_host_us):
        return self.call_time(run).call_us

    def alone_us(self, run):
        return self.call_time(run).call_us


@pytest.fixture
def told(monkeypatch):
    """What torch was told."""
    told = []
    monkeypatch.setattr(torch_peer, "prefer_cublas_lt", lambda: told.append("cublaslt"))
    return told


@pytest.fixture
def gpu_context(monkeypatch, told):
    """A device that is said to be a GPU, whose tensors are on the CPU and whose calls are not captured."""
    def missing():
        raise OSError("libcublasLt.so: no such file")

    monkeypatch.delenv("PENSTOCK_CUB", raising=False)
    monkeypatch.setattr(large_product, "LARGE", 64)
    monkeypatch.setattr(gemm_case, "Captured", lambda call: lambda *arguments: call(*arguments))
    monkeypatch.setattr(cublas_lt, "of_torch", missing)
    monkeypatch.setattr(transform_case, "Compiled", lambda call: call)
    monkeypatch.setattr(transform_case, "has_triton", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: None)
    monkeypatch.setattr(copy.CopyCase, "_room", lambda case, where: torch.empty(case._elements))
    device = types.SimpleNamespace(kind="cuda", name="cpu", capabilities={
        "l2_bytes": 1 << 16, "compute_capability": (9, 0)})
    return Context(device, seed=11, quick=True)


def run(case):
    measured = run_case(case, case.kernels(), GpuClock(), Plan.quick(), 1 << 16, RATES)
    assert measured.complaints == [] and measured.notes == []
    return measured.entry


@pytest.mark.parametrize("number", range(len(gemm.QUICK)))
def test_products_in_bf16_are_checked_and_timed_beside_cublaslt(gpu_context, told, number):
    case = gemm.operator.cases(gpu_context)[number]
    assert list(case.kernels()) == ["best", "captured", "portable"]
    entry = run(case)
    assert told == ["cublaslt"] and list(entry["peer"]) == ["cuBLASLt"]
    assert isinstance(case.peers()["cuBLASLt-best16"], Absent)
    assert case.params["dtype"] == "bf16" and entry["yardstick"] == gemm_case.MEANING
    assert 0 < entry["max_error"] <= entry["tolerance"] < 0.01
    assert list(entry["metrics"]["roof_parts_us"]) == ["large product"]


def test_the_roof_of_a_product_by_hand(gpu_context):
    case = gemm_case.GemmCase(gpu_context, "it", gemm_case.Size(64, 64, 128))
    assert case.roof_of_parts(RATES, {"large product": 100.0}) == pytest.approx(200)
    assert case.roof_of_parts(RATES, {"large product": 1e-3}) == pytest.approx(case.bytes * 1e-4)


@pytest.mark.parametrize("number", range(len(transform.CASES)))
def test_functions_are_checked_and_timed_beside_torch(gpu_context, number):
    case = transform.operator.cases(gpu_context)[number]
    assert list(case.kernels()) == ["best", "portable", "sm90"]
    entry = run(case)
    assert list(entry["peer"]) == ["torch", "torch.compile", "cudaMemcpy, whole pages"]
    assert case.name == list(transform.CASES)[number] and isinstance(case.peers()["CUB"], Absent)


def test_other_gpus_have_no_sm90_kernel(gpu_context):
    gpu_context.device.capabilities["compute_capability"] = 8, 0
    assert list(transform.operator.cases(gpu_context)[0].kernels()) == ["best", "portable"]


@pytest.mark.parametrize("number", range(len(copy.CASES)))
def test_copies_are_checked_and_timed_beside_torch(gpu_context, number):
    case = copy.operator.cases(gpu_context)[number]
    within = case.params["from"] == case.params["to"]
    assert list(case.kernels()) == (["best", "transform"] if within else ["best"])
    entry = run(case)
    assert list(entry["peer"]) == ["torch"] and entry["max_error"] == 0
    assert ("CUB" in case.peers()) == within
