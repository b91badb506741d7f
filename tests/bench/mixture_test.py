"""The benchmark of moe: its cases, its load, its check, and who it is compared with."""

import json
import sys

import numpy
import pytest

from penstock.bench import Absent
from penstock.bench._clock import CpuClock
from penstock.bench._correctness import check
from penstock.bench.mixture import layer_case, sonic_peer
from penstock.bench.mixture.layer_case import LayerCase
from penstock.bench.mixture.load import Load, log_popularity
from penstock.bench.mixture.shapes import Shape
from penstock.bench.operators import moe as operator

SMALL = Shape(70, 64, 40, 8, 2)


def test_shapes_count_by_hand():
    shape = Shape(tokens=10, hidden=8, width=16, experts=4, choices=2)
    assert shape.rows == 20 and shape.flop == 6 * 20 * 8 * 16
    assert shape.expert_bytes(2) == 3 * 8 * 16 * 2
    assert shape.least_bytes(2) == 4 * 768 + (4 + 2 * 10) * 8 * 2
    assert Shape(1, 8, 16, 4, 2).least_bytes(2) == 2 * 768 + (4 + 2) * 8 * 2  # two of four experts
    assert shape.combine_bytes(2) == (20 * 8 + 10 * 8 + 10 * 4) * 2
    assert shape.workspace_bound(2) == (20 + 64) * (8 + 16) * 2 + 16 * 20 + (1 << 20)


def test_the_cases_are_those_that_are_listed():
    assert len(operator.SHAPES) == 13
    first = list(operator.SHAPES.values())[:6]
    assert [(s.tokens, s.hidden, s.width, s.experts, s.choices) for s in first] == [
        (16384, 2048, 768, 128, 8), (24576, 1536, 256, 128, 8), (32768, 4096, 512, 128, 8),
        (32768, 2048, 1024, 64, 8), (16384, 4096, 14336, 8, 2), (16384, 7168, 2048, 64, 8)]
    assert [s.tokens for s in operator.SHAPES.values() if s.hidden == 2048 and s.width == 768] == [
        16384, 256, 1024, 4096, 16384]
    assert all(s.hidden % 8 == 0 and s.width % 8 == 0 for s in operator.SHAPES.values())


def test_load_by_hand():
    load = Load.of(numpy.array([[3, 2, 1, 0], [0, 2, 2, 1], [5, 4, 3.99, 0]], "f4"), 2)
    assert load.ids.tolist() == [[0, 1], [1, 2], [0, 1]]
    assert load.counts.tolist() == [2, 3, 1, 0] and load.touched == 3
    assert load.padded_rows == 3 * 64
    share = numpy.exp(1) / (1 + numpy.exp(1))
    numpy.testing.assert_allclose(load.weights([0, 1]), [[share, 1 - share], [0.5, 0.5]])
    # The second and the third choice of the last token are too close to tell; nothing else is.
    assert load.clear_tokens(9).tolist() == [0, 1] and load.clear_tokens(1).tolist() == [0]
    assert Load.of(load.logits, 4).clear_tokens(9).tolist() == [0, 1, 2]


def test_rows_are_padded_per_expert():
    ids = numpy.repeat([0, 1, 2], [64, 65, 1])[:, None]
    assert Load(numpy.zeros((130, 4)), ids).padded_rows == 64 + 128 + 64


def test_the_popularity_follows_zipfs_law():
    share = numpy.exp(log_popularity(numpy.random.default_rng(1), 50, 1.0))
    ordered = numpy.sort(share)[::-1]
    numpy.testing.assert_allclose(ordered[0] / ordered, numpy.arange(1, 51))
    assert (share != ordered).any() and share.mean() == pytest.approx(1)


def test_a_zipf_load_is_uneven_and_the_other_is_not(context):
    uneven = LayerCase(context, "it", Shape(4096, 1024, 8, 64, 4, 1.0)).load.counts
    even = LayerCase(context, "it", Shape(4096, 1024, 8, 64, 4)).load.counts
    assert uneven.sum() == even.sum() == 4 * 4096
    ordered = numpy.sort(uneven)[::-1]
    assert ordered[0] > 4 * ordered[16] > 0 and even.max() < 2 * even.min()


def test_it_is_right(bench):
    code, out, err = bench("moe", "--mode", "correctness", "--device", "cpu", "--quick")
    assert code == 0, err
    assert out.count(" right ") == 4


@pytest.mark.parametrize("breaking", [
    lambda out: out.__setitem__((slice(None), 3), 0.0),
    lambda out: out.__imul__(1.001),
    lambda out: out.__setitem__((-1, -1), numpy.nan),
    lambda out: out.__setitem__((0, 0), numpy.float32(1.5e16)),  # as if never written
])
def test_what_is_wrong_is_found(context, breaking):
    case = LayerCase(context, "it", SMALL)

    def broken(inputs, out):
        case.kernels()["best"](inputs, out)
        breaking(out)

    verdicts = check(case, {"best": case.kernels()["best"], "broken": broken}, CpuClock())
    assert verdicts["best"].right and not verdicts["broken"].right
    assert 0 < verdicts["best"].max_error <= case.tolerance < 1e-4


def test_elements_of_other_tokens_must_be_written_too(context, monkeypatch):
    monkeypatch.setattr(layer_case, "SAMPLE", 2)
    case = LayerCase(context, "it", SMALL)
    left = next(t for t in range(SMALL.tokens) if t not in case._sample)

    def skips(inputs, out):
        kept = out[left].copy()
        case.kernels()["best"](inputs, out)
        out[left] = kept

    verdict = check(case, {"skips": skips}, CpuClock())["skips"]
    assert "output 1: 1 of 1 elements wrong" in verdict.complaint and "got 64" in verdict.complaint


def test_the_file_has_the_metrics_of_a_layer(bench, tmp_path):
    code, _, err = bench("moe", "--device", "cpu", "--quick", "--case", "Zipf load", "--output",
                         "r.json")
    assert code == 0, err
    case, = json.loads((tmp_path / "r.json").read_text())["cases"]
    metrics, params = case["metrics"], case["params"]
    rows = params["tokens"] * params["choices"]
    assert sum(metrics["load"]) == rows and len(metrics["load"]) == params["experts"]
    assert metrics["experts_touched"] == sum(count > 0 for count in metrics["load"])
    assert metrics["padded_rows"] == sum(-(-count // 64) * 64 for count in metrics["load"])
    assert metrics["padded_share"] == pytest.approx(1 - rows / metrics["padded_rows"], abs=1e-4)
    assert 0 < metrics["workspace_bytes"] <= metrics["workspace_bound"]
    assert metrics["flop"] == 6 * rows * params["hidden"] * params["width"]
    assert case["tolerance"] > 0 and set(case["peer"]) == {"numpy"}


def test_sonicmoe_is_absent_or_found_where_peers_says(monkeypatch, tmp_path):
    monkeypatch.delenv("PEERS", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert sonic_peer.version() is None
    monkeypatch.setenv("PEERS", str(tmp_path))
    assert sonic_peer.version() is None
    (tmp_path / "sonicmoe").mkdir()
    (tmp_path / "sonicmoe/__init__.py").write_text("raise RuntimeError('imported too early')\n")
    assert sonic_peer.version() == "of unknown version"
    (tmp_path / "sonic_moe-0.1.2.post1.dist-info").mkdir()
    assert sonic_peer.version() == "0.1.2.post1"
    assert sys.path.count(str(tmp_path)) == 1


def test_sonicmoe_compiles_before_it_is_timed_and_gets_its_layout(monkeypatch, torch):
    calls = []

    def layer(x, router, gate_up, *rest, **more):
        calls.append((gate_up.shape, rest[1].shape, rest[3], rest[6], more))
        return [x + 1]

    functional = type(sys)("sonicmoe.functional")
    functional.moe_TC_softmax_topk_layer = layer
    enums = type(sys)("sonicmoe.enums")
    enums.ActivationType = type("ActivationType", (), {"SWIGLU": "swiglu"})
    for module in (type(sys)("sonicmoe"), functional, enums):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "current_stream",
                        lambda: type("Stream", (), {"cuda_stream": 7}))
    inputs = {"x": torch.zeros(3, 8), "router": torch.zeros(4, 8),
              "gate_up": torch.zeros(4, 32, 8), "down": torch.zeros(4, 8, 16)}
    peer = sonic_peer.SonicLayer(2)
    assert (peer(inputs, None) == 1).all()
    assert calls[1] == "synchronize" and len(calls) == 3
    assert calls[2] == (torch.Size([32, 8, 4]), torch.Size([8, 16, 4]), 2, True,
                        {"concat_layout": True})
    peer(inputs, None)
    assert len(calls) == 4


def test_on_the_cpu_there_is_nothing_to_capture(context):
    case = LayerCase(context, "it", SMALL)
    assert list(case.kernels()) == ["best"] and case.roof_parts() == {}
    assert case.roof_us({"host_copy": 1e9}) == pytest.approx(case.bytes * 1e-3)
    assert not any(isinstance(peer, Absent) for peer in case.peers().values())
