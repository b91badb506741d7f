"""bench/checkpoint_loading.py on the CPU with a small checkpoint: it runs, checks what it loads, and cleans
up."""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock import weights

SCRIPT = Path(__file__).resolve().parents[2] / "bench/checkpoint_loading.py"
IN_STORE = "experts into an ExpertStore"
CASES = {"host memory", "page-locked memory", "page-locked memory, page-aligned", IN_STORE}


@pytest.fixture(scope="module")
def loading():
    spec = importlib.util.spec_from_file_location("checkpoint_loading", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(loading, tmp_path):
    tensors = loading.write_checkpoint(tmp_path, 48 << 20)
    return tmp_path, tensors


def test_the_checkpoint(folder):
    path, tensors = folder
    checkpoint = weights.open(path)
    assert 2 <= len(checkpoint.files) <= 4 and set(checkpoint.names) == set(tensors)
    assert 40 << 20 < checkpoint.nbytes < 64 << 20


def test_bare_reads_see_all_bytes(loading, folder):
    checkpoint = weights.open(folder[0])
    disk = loading.Disk(checkpoint.files)
    assert sum(disk.sizes) > checkpoint.nbytes
    disk.forget()
    disk.reader(1 << 20, 3)()
    disk.sizes[0] += 1
    with pytest.raises(RuntimeError, match="bare read: [0-9]+ of [0-9]+ bytes"):
        disk.reader(1 << 20, 3)()


def test_loads_are_checked(loading, folder):
    loads = loading.Loads(*folder, penstock.Device("cpu"), 2)
    assert set(loads.ways) == CASES
    for name in loads.ways:
        assert loads.is_right(name)
        if name not in ("host memory", IN_STORE):
            loads.ways[name] = lambda: None
            assert not loads.is_right(name), "what the pass before loaded is poisoned"
    folder[1]["model.embed_tokens.weight"] = folder[1]["model.embed_tokens.weight"] ^ 1
    assert not loads.is_right("host memory")


@pytest.mark.parametrize("part", ["gate", "up", "down"])
def test_stores_are_checked(loading, folder, part):
    loads = loading.Loads(*folder, penstock.Device("cpu"), 2)
    assert loads.is_right(IN_STORE)
    changed = f"model.layers.0.mlp.experts.3.{part}_proj.weight"
    folder[1][changed] = folder[1][changed] ^ 1
    assert not loads.is_right(IN_STORE)


def test_results(tmp_path):
    output = tmp_path / "results.json"
    done = subprocess.run([sys.executable, SCRIPT, "--device", "cpu", "--directory", tmp_path, "--mib", "32",
                           "--repeats", "2", "--output", output], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())
    assert results["name"] == "checkpoint_loading" and results["machine"]["gpu"] == "none"
    assert {case["case"] for case in results["cases"] + results.get("dropped", [])} == CASES
    for case in results["cases"]:
        metrics = case["metrics"]
        assert case["floor_us"] == max(metrics["engines_us"].values()) and "disk" in metrics["engines_us"]
        assert math.isclose(metrics["of_floor"], case["floor_us"] / case["ours"]["call_us"])
        assert len(metrics["bare_us"]) == 3 and case["params"]["files"] > 1
        if case["case"] == IN_STORE:
            assert case["params"]["bytes"] == 4 * 3 * 2048 * 768 * 2
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize("option", ["--mib", "--repeats", "--threads"])
def test_refuses(option):
    done = subprocess.run([sys.executable, SCRIPT, option, "0"], capture_output=True, text=True)
    assert done.returncode == 2 and f"{option}: expected at least 1, got 0" in done.stderr
