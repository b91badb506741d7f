"""The parts of the benchmarks of attention that run on a GPU, here with torch's tensors on the CPU."""

import sys
import types

import numpy
import pytest

from penstock.bench import Absent, BenchError, Context, Peer
from penstock.bench._clock import CpuClock
from penstock.bench._correctness import check
from penstock.bench._performance import answering, run_case
from penstock.bench._timing import Plan
from penstock.bench.appending.append_case import AppendCase
from penstock.bench.appending.attend_case import AttendCase
from penstock.bench.decoding.case import READ, DecodeCase
from penstock.bench.operators import (append_attention, append_kv, attention, attention_cpu, attention_decode,
                                      attention_portable)
from penstock.bench.prefill import flash_peer, reference
from penstock.bench.prefill.case import AttentionCase
from penstock.bench.prefill.portable_case import PortableCase
from penstock.bench.prefill.shapes import Shape, sample_of

torch = pytest.importorskip("torch", reason="torch is not installed here")

from penstock.bench.prefill import torch_peer  # noqa: E402

COPY = {"device_copy": 1e10, "host_copy": 1e10}
ON_CPU = "aten._scaled_dot_product_flash_attention_for_cpu"
SWITCHES = tuple(torch_peer.SWITCHES.values())


class GpuClock(CpuClock):
    """Says that a GPU took the time of the call."""

    def gpu_us(self, run, expected_host_us):
        return self.call_time(run).call_us

    def alone_us(self, run):
        return self.call_time(run).call_us


@pytest.fixture(autouse=True)
def switches():
    """Every test begins and ends with all backends enabled."""
    yield
    for switch in SWITCHES:
        getattr(torch.backends.cuda, switch)(True)
    torch_peer._enabled = ""


@pytest.fixture
def gpu_context(monkeypatch):
    """A device that is said to be a GPU, whose tensors are on the CPU, with torch's backend of the CPU in
    place of cuDNN."""
    monkeypatch.delenv("PEERS", raising=False)
    monkeypatch.setattr(torch_peer, "enable_only", lambda backend: None)
    monkeypatch.setitem(torch_peer.OPERATORS, "cuDNN", ON_CPU)
    device = types.SimpleNamespace(kind="cuda", name="cpu", capabilities={"l2_bytes": 1 << 16})
    return Context(device, seed=11, quick=True)


def run(case):
    return run_case(case, case.kernels(), GpuClock(), Plan.quick(), 1 << 16, COPY)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("name", attention.QUICK)
def test_16_bit_types_are_checked_and_timed_beside_torch(gpu_context, name, dtype):
    shape = Shape(**vars(attention.QUICK[name]) | {"dtype": dtype})
    case = AttentionCase(gpu_context, name, shape)
    measured = run(case)
    assert measured.complaints == [] and measured.notes == []
    entry = measured.entry
    assert set(entry["peer"]) == ({"cuDNN"} if name in ("causal", "GQA") else set())
    assert entry["params"]["dtype"] == dtype and entry["metrics"]["enqueue_us"] > 0
    assert entry["metrics"]["rotation"]["sets"] >= 2
    assert 0 < entry["max_error"] <= entry["tolerance"] < {"bf16": 0.2, "f16": 0.02}[dtype]


def test_a_result_that_is_3_percent_too_large_is_wrong(gpu_context):
    case = AttentionCase(gpu_context, "it", Shape(2, 500, 4, 64, True))

    def too_large(inputs, out):
        case.kernels()["best"](inputs, out)
        out.mul_(1.03)

    measured = run_case(case, {"too large": too_large}, GpuClock(), Plan.quick(), 1 << 16, COPY)
    assert "elements wrong" in measured.complaints[0]


def test_the_reference_rounds_what_kernels_round():
    shape = Shape(1, 64, 2, 32)
    inputs = {name: torch.randn(1, 64, 2, 32).to(torch.bfloat16) for name in ("q", "k", "v")}
    exact, coarse = reference.of_sample(shape, inputs, sample_of(shape, numpy.random.default_rng(0)))
    wide = {name: each.float().transpose(1, 2) for name, each in inputs.items()}
    wanted = torch.nn.functional.scaled_dot_product_attention(*wide.values())[0].transpose(0, 1)
    torch.testing.assert_close(exact[0], wanted[0], rtol=0, atol=1e-5)
    assert exact.dtype == torch.float32 and 1e-4 < abs(coarse - exact).max() < 2e-2
    assert (coarse == coarse.to(torch.bfloat16)).all()


def test_a_fallback_of_torch_is_left_out(gpu_context, monkeypatch):
    monkeypatch.setitem(torch_peer.OPERATORS, "cuDNN", "aten._scaled_dot_product_cudnn_attention")
    measured = run(AttentionCase(gpu_context, "it", attention.QUICK["causal"]))
    assert measured.complaints == [] and measured.entry["peer"] == {}
    assert f"torch ran {ON_CPU}.default and not cuDNN" in measured.entry["metrics"]["left_out"]["cuDNN"]


def test_torchs_own_fallback_is_left_out(gpu_context):
    shape = Shape(1, 20, 2, 32, dim_v=16, heads_kv=1)  # which torch computes in several operators
    measured = run(AttentionCase(gpu_context, "it", shape))
    assert measured.complaints == []
    assert "no fused operator and not cuDNN" in measured.entry["metrics"]["left_out"]["cuDNN"]


def test_one_backend_is_enabled_at_a_time():
    tensors = {name: torch.randn(1, 16, 2, 32) for name in ("q", "k", "v")}
    shape = Shape(1, 16, 2, 32, True)
    flash, cudnn = (torch_peer.TorchAttention(shape, name) for name in ("flash", "cuDNN"))
    wanted = flash(tensors, None)
    assert wanted.shape == (1, 16, 2, 32)
    with pytest.raises(RuntimeError, match="No viable backend"):
        cudnn(tensors, None)  # the CPU has none
    assert torch.equal(flash(tensors, None), wanted)  # enabled again
    assert torch.backends.cuda.flash_sdp_enabled() and not torch.backends.cuda.math_sdp_enabled()


def test_an_unexpected_operator_is_an_error(monkeypatch):
    monkeypatch.setattr(torch_peer, "enable_only", lambda backend: None)
    tensors = {name: torch.randn(1, 16, 2, 32) for name in ("q", "k", "v")}
    with pytest.raises(BenchError, match="_for_cpu.default and not cuDNN"):
        torch_peer.TorchAttention(Shape(1, 16, 2, 32), "cuDNN")(tensors, None)


def test_torch_is_absent_where_its_function_means_something_else(gpu_context):
    reasons = {}
    for name, shape in attention.on_gpu().items():
        peer = AttentionCase(gpu_context, name, shape).peers()["cuDNN"]
        if isinstance(peer, Absent):
            reasons[name] = peer.reason
    assert set(reasons) == {"packed, 128 to 8192 rows", "window of 1024", "softcap 50", "sinks",
                            "1000 rows behind 2001", "1024 rows behind 8192"}


@pytest.fixture
def flash(monkeypatch):
    """The calls of a FlashAttention that returns q + 1 and a log-sum-exp."""
    calls = []

    def function(name):
        def called(q, k, v, **options):
            calls.append((name, options))
            return q + 1, None
        return called

    package = types.ModuleType("flash_attn")
    package.cute = types.SimpleNamespace(flash_attn_func=function("dense"),
                                         flash_attn_varlen_func=function("varlen"))
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("synchronize"))
    return calls


def test_flash_attention_compiles_before_it_is_timed(flash):
    inputs = {name: torch.zeros(1, 4, 2, 8) for name in ("q", "k", "v")}
    peer = flash_peer.FlashAttention(Shape(1, 4, 2, 8, True))
    assert (peer(inputs, None) == 1).all()
    assert [call if call == "synchronize" else call[0] for call in flash] == [
        "dense", "synchronize", "dense"]
    assert flash[2][1] == {"causal": True, "softcap": 0.0, "window_size": (None, None)}
    peer(inputs, None)
    assert len(flash) == 4


def test_flash_attention_gets_lengths_and_options(flash):
    shape = attention.QUICK["packed"]
    begins = torch.tensor([0, 17, 18, 68], dtype=torch.int32)
    inputs = {name: torch.zeros(68, 4, 16) for name in ("q", "k", "v")} | {"begins": begins}
    flash_peer.FlashAttention(shape)(inputs, None)
    name, options = flash[-1]
    assert name == "varlen" and options["cu_seqlens_q"] is begins is options["cu_seqlens_k"]
    assert options["max_seqlen_q"] == options["max_seqlen_k"] == 50
    shape = attention.QUICK["window, softcap and sinks"]
    inputs = {name: torch.zeros(2, 65, 4, 24) for name in ("q", "k", "v")} | {"sinks": torch.ones(4)}
    flash_peer.FlashAttention(shape)(inputs, None)
    assert flash[-1][1] == {"causal": True, "softcap": 5.0, "window_size": (9, None),
                            "learnable_sink": inputs["sinks"]}


def test_a_wrong_peer_is_left_out(gpu_context, flash, monkeypatch, tmp_path):
    (tmp_path / "flash_attn/cute").mkdir(parents=True)
    monkeypatch.setenv("PEERS", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    case = AttentionCase(gpu_context, "it", attention.QUICK["causal"])
    assert isinstance(case.peers()["FlashAttention"], Peer)
    measured = run(case)
    assert "elements wrong" in measured.entry["metrics"]["left_out"]["FlashAttention"]
    assert set(measured.entry["peer"]) == {"cuDNN"}


def test_the_roof_by_hand(gpu_context):
    case = AttentionCase(gpu_context, "it", Shape(1, 64, 2, 32))
    assert case.flop == 4 * 2 * 64 * 64 * 32
    times = {"large product": 2.0 * 256**3}  # one FLOP per microsecond
    assert case.roof_of_parts(COPY, times) == pytest.approx(case.flop)
    assert case.roof_of_parts(COPY, {"large product": 1e-9}) == pytest.approx(case.bytes * 1e-4)
    assert "torch" in case.yardstick


def test_the_portable_kernel_stands_beside_the_best_and_flash_attention_2(gpu_context):
    case = attention_portable.operator.cases(gpu_context)[0]
    assert list(case.kernels()) == ["portable", "best"] and list(case.peers()) == ["FlashAttention 2"]
    measured = run(case)
    assert measured.complaints == [] and set(measured.entry["peer"]) == {"FlashAttention 2"}
    assert "best" in measured.entry["metrics"]["kernels"]


@pytest.mark.parametrize("shape", [Shape(2, 70, 4, 32, True, dtype="f32"),
                                   Shape(3, 1, 4, 32, keys=300, dtype="f32")])
def test_f32_stands_beside_the_memory_efficient_kernel(gpu_context, monkeypatch, shape):
    monkeypatch.setitem(torch_peer.OPERATORS, "efficient", ON_CPU)
    case = PortableCase(gpu_context, "it", shape)
    assert list(case.kernels()) == ["portable", "best"] and list(case.peers()) == ["efficient"]
    measured = run(case)
    assert measured.complaints == [] and set(measured.entry["peer"]) == {"efficient"}
    assert measured.entry["params"]["dtype"] == "f32"


def test_f32_is_measured_on_a_gpu():
    shapes = attention_portable.operator._on_gpu()
    assert [name for name, shape in shapes.items() if shape.dtype == "f32"] == [
        f"d{dim}, {name}, f32" for dim in (64, 128) for name in ("4096, causal", "one query, 4096 keys")]


def without_graphs(case):
    """Its kernels without the one that needs CUDA graphs."""
    return {name: call for name, call in case.kernels().items() if name != "captured"}


@pytest.mark.parametrize("name", append_kv.SMALL)
def test_appending_stands_beside_torch_and_a_copy(gpu_context, name):
    case = AppendCase(gpu_context, name, append_kv.SMALL[name])
    measured = run_case(case, without_graphs(case), GpuClock(), Plan.quick(), 1 << 16, COPY)
    assert measured.complaints == [] and measured.notes == []
    assert set(measured.entry["peer"]) == {"cudaMemcpy, whole pages"} | (
        set() if name == "interleaved" else {"torch"})
    assert measured.entry["params"]["dtype"] == "bf16"


def test_a_step_in_16_bits_is_checked(gpu_context):
    case = AttendCase(gpu_context, "it", append_attention.SMALL["small"])
    calls = without_graphs(case)

    def not_rotated(inputs, outputs):
        calls["best"](inputs, outputs)
        inputs["k"][:, -2:] = inputs["k_new"]

    verdicts = check(case, calls | {"not rotated": not_rotated}, GpuClock())
    assert [name for name, verdict in verdicts.items() if not verdict.right] == ["not rotated"]
    assert case.engines()[READ]._read == 3 * 192 * 2 * 64 * 2


def test_sequences_of_several_lengths_have_no_peer_of_torch(gpu_context):
    case = DecodeCase(gpu_context, "it", attention_decode.SMALL["several lengths"], brief=True)
    assert {name: peer.reason for name, peer in case.peers().items()} == dict.fromkeys(
        ("cuDNN", "FlashAttention 2", "efficient"), "scaled_dot_product_attention takes sequences of one length")
    assert all(verdict.right for verdict in check(case, case.kernels(), GpuClock()).values())


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_decode_stands_beside_every_backend_of_torch_that_takes_it(gpu_context, dtype):
    shape = Shape(**vars(attention_decode.SMALL["small"]) | {"dtype": dtype})
    case = DecodeCase(gpu_context, "it", shape, brief=True)
    assert case.params["dtype"] == dtype
    assert all(verdict.right for verdict in check(case, case.kernels(), GpuClock()).values())
    verdicts = check(case, answering(case), GpuClock())
    assert {name for name, verdict in verdicts.items() if verdict.right} == {"cuDNN", "FlashAttention 2"}
    assert f"torch ran {ON_CPU}.default and not efficient" in verdicts["efficient"].complaint


@pytest.mark.parametrize("number", range(len(attention_cpu.QUICK)))
def test_on_the_cpu_ours_is_timed_beside_torch_on_the_same_threads(context, number):
    case = attention_cpu.operator.cases(context)[number]
    measured = run_case(case, case.kernels(), CpuClock(), Plan.quick(), 1 << 16, COPY)
    assert measured.complaints == [] and set(measured.entry["peer"]) == {"torch"}
    assert torch.get_num_threads() == case.params["threads"]
    assert 0 < measured.entry["max_error"] <= measured.entry["tolerance"] < 1e-4


def test_all_columns_are_right_on_the_cpu(context):
    case = attention_cpu.operator.cases(context)[0]
    calls = case.kernels() | {name: peer.call for name, peer in case.peers().items()}
    assert all(verdict.right for verdict in check(case, calls, CpuClock()).values())
