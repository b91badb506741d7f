"""bench/expert_streaming_transformers.py on the CPU with a small model: it runs, checks results, and takes no more
samples than it should."""

import importlib.util
import json
import math
import subprocess
import sys
import types
from pathlib import Path

import pytest

from penstock.bench._clock import CallTime, CpuClock

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("accelerate", reason="accelerate is not installed here")

SCRIPT = Path(__file__).resolve().parents[2] / "bench/expert_streaming_transformers.py"
SHAPES = ("prefill 1x64", "decode, batch 2")


class GpuClock(CpuClock):
    """Says that a GPU took 123 µs."""

    def gpu_us(self, run, expected_host_us):
        run()
        return 123.0


class SlowClock(CpuClock):
    """Says that calls take as long as they return."""

    def call_time(self, run):
        return CallTime(host_us=1.0, call_us=run())


@pytest.fixture
def streaming(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    spec = importlib.util.spec_from_file_location("expert_streaming_transformers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_results(tmp_path):
    output = tmp_path / "results.json"
    done = subprocess.run([sys.executable, SCRIPT, "--quick", "--device", "cpu", "--output", output],
                          capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())
    assert results["machine"]["gpu"] == "none" and "device_map" in results["peers"]["accelerate"]
    cases = {case["case"]: case for case in results["cases"]}
    assert set(cases) == {f"{what}, {shape}" for what in ("experts", "forward") for shape in SHAPES}
    for name, case in cases.items():
        assert case["correct"] and case["metrics"]["bitwise"]
        assert set(case["peer"]) == {"resident"} | ({"accelerate"} if name.startswith("forward") else set())
        assert "without_experts_gpu_us" not in case["metrics"] and "floor_us" not in case
        if name.startswith("forward"):
            assert f"{name}: streamed" in done.stdout
            assert case["metrics"]["without_experts_call_us"] > 0 < case["metrics"]["speedup_over_accelerate"]


def test_yardsticks(streaming, tmp_path, monkeypatch, capsys):
    """With a link, and a clock that has the GPU's own times, as on a GPU."""
    output = tmp_path / "results.json"
    monkeypatch.setattr(streaming, "clock_for", lambda device: GpuClock())
    monkeypatch.setattr(streaming, "link_rate", lambda store, device: 1e8)
    monkeypatch.setattr(streaming, "needed_by", lambda streamed, run: 10)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--quick", "--device", "cpu", "--output", str(output)])
    streaming.main()
    for case in json.loads(output.read_text())["cases"]:
        metrics, ours = case["metrics"], case["ours"]["call_us"]
        assert metrics["bytes_needed"] == 10 * 3 * 64 * 48 * 2
        assert math.isclose(case["floor_us"], metrics["bytes_needed"] / 1e8 * 1e6)
        if case["case"].startswith("experts"):
            assert "yardstick_us" not in case
            continue
        link_and_others = case["floor_us"] + 123.0
        larger = max(case["floor_us"], case["peer"]["resident"]["call_us"])
        assert metrics["without_experts_gpu_us"] == 123.0
        assert math.isclose(metrics["over_link_and_others"], ours / link_and_others, rel_tol=0.01, abs_tol=1e-4)
        assert case["yardstick_us"] == (link_and_others if "decode" in case["case"] else larger)
    assert "in decode, the link's time and the GPU's of everything but the experts" in capsys.readouterr().out


@pytest.mark.parametrize("seconds, samples", [(0.001, 7), (3, 3), (4, 2), (100, 1)])
def test_long_runs_are_repeated_less_often(streaming, monkeypatch, seconds, samples):
    monkeypatch.setattr(streaming.time, "sleep", lambda _: None)
    found = streaming.timed({"short": lambda: 1.0, "long": lambda: seconds * 1e6}, SlowClock(), lambda: None)
    assert len(found["short"].call_us) == 7 and len(found["long"].call_us) == samples


def test_accelerate_keeps_what_fits(streaming):
    """As device_map="auto" places layers, with a GPU that has memory for some of them."""
    with torch.no_grad():
        model = streaming.build({**streaming.SHAPES, **streaming.SMALL, "num_hidden_layers": 8}, "cpu")
    gpu = types.SimpleNamespace(type="cuda", index=0)
    size = sum(each.nbytes for each in model.parameters())
    found = streaming.places_of(model, gpu, size // 2)
    assert {"model.layers.0": 0, "model.layers.7": "cpu"}.items() <= found.items()
    assert set(found.values()) == {0, "cpu"}
    assert set(streaming.places_of(model, torch.device("cpu"), 0).values()) == {"cpu"}
