"""The command line: what it understands, what it answers, and with which exit code."""

import json
import subprocess
import sys

import numpy
import pytest

from conftest import Doubling, double


@pytest.mark.parametrize("words, said", [
    ([], "OP: expected one of double, given nothing"),
    (["dance"], "OP: expected one of double, given 'dance'"),
    (["double", "--mode", "sing"], "--mode"),
    (["double", "--case", "x"], "--case: expected one of double, given 'x'"),
    (["double", "--kernel", "x"], "--kernel: expected one of default, given 'x'"),
    (["double", "--iterations", "0"], "expected a whole number of at least 1, got '0'"),
    (["double", "--iterations", "-3"], "--iterations"),
    (["double", "--iterations", "many"], "got 'many'"),
    (["double", "--seed", "x"], "--seed"),
    (["double", "--device", "tpu"], "device: expected"),
    (["double", "--output", "no/such/r.json"], "--output: expected a file in a directory that exists"),
    (["double", "--output", "."], "--output: expected a file, given ., a directory"),
    (["double", "--compare", "x.ncu-rep"], "--compare: expected --mode ncu"),
    (["double", "--mode", "single_run", "--kernel", "default", "--kernel", "numpy"], "--kernel"),
    (["double", "--nope"], "--nope"),
])
def test_what_it_does_not_understand_is_two(bench, operator, words, said):
    operator()
    code, out, err = bench(*words)
    assert code == 2 and out == ""
    assert err.startswith("penstock: error: ") and err.count("\n") == 1
    assert said in err and "(see: penstock bench --help)" in err


def test_help_has_examples(bench):
    code, out, _ = bench("--help")
    assert code == 0 and "examples:" in out and "  penstock bench iterate" in out


def test_list_names_everything(bench, operator):
    operator()
    code, out, _ = bench("--list", "--device", "cpu")
    assert code == 0
    assert out.splitlines() == ["double: twice x", "  case double: elements 1000",
                                "  kernels: default", f"  peer numpy: {numpy.__version__}",
                                "  peer elsewhere: absent (not installed)"]
    listed = json.loads(bench("double", "--list", "--json", "--device", "cpu")[1])
    assert listed["double"]["kernels"] == ["default"]


def test_correctness_prints_its_seed_and_passes(bench, operator):
    operator()
    code, out, err = bench("double", "--mode", "correctness", "--device", "cpu", "--seed", 9)
    assert code == 0 and err == "" and out.startswith("double on cpu, seed 9\n")
    assert out.count("right") == 2


def test_correctness_fails_with_a_line_that_repeats_it(bench, operator):
    operator(lambda context: [Doubling(context, kernels={"default": lambda x, out: None})])
    code, out, err = bench("double", "--mode", "correctness", "--device", "cpu")
    assert code == 1 and "WRONG" in out
    seed = out.splitlines()[0].split()[-1]
    assert (f"to repeat: python -m penstock.bench double --mode correctness --case double --kernel "
            f"default --device cpu --seed {seed}") in err
    code, out, _ = bench("double", "--mode", "correctness", "--device", "cpu", "--json")
    check, = json.loads(out)["checks"]
    assert code == 1 and not check["correct"] and check["max_error"] is None


def test_a_single_run_is_just_that(bench, operator):
    calls = []

    def counted(x, out):
        calls.append(1)
        double(x, out)

    operator(lambda context: [Doubling(context, kernels={"default": counted})])
    code, out, err = bench("double", "--mode", "single_run", "--device", "cpu", "--iterations", 4)
    assert (code, err, len(calls)) == (0, "", 4)
    assert out == "double: double: default: 4 calls on cpu\n"
    bench("double", "--mode", "single_run", "--device", "cpu", "--warm-up", 2)
    assert len(calls) == 4 + 3


def test_ctrl_c_is_130(bench, operator):
    def interrupted(context):
        raise KeyboardInterrupt

    operator(interrupted)
    assert bench("double", "--device", "cpu") == (130, "", "penstock: interrupted\n")


def test_output_that_does_not_arrive_is_a_failure():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "penstock.bench", "--list", "--device", "cpu"],
                              stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "standard output" in done.stderr


def test_a_plot_needs_matplotlib(bench, operator, monkeypatch):
    operator()
    monkeypatch.setattr("penstock.bench._plot.find_spec", lambda name: None)
    code, _, err = bench("double", "--device", "cpu", "--plot", "a.png")
    assert code == 1 and "pip install matplotlib" in err and "penstock report" in err


def test_a_plot_is_drawn(bench, operator, tmp_path):
    pytest.importorskip("matplotlib", reason="plots are drawn by matplotlib")
    operator()
    assert bench("double", "--quick", "--device", "cpu", "--plot", "a.png")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_loads_of_experts_are_drawn_below(bench, tmp_path):
    pytest.importorskip("matplotlib", reason="plots are drawn by matplotlib")
    sizes = []
    for words in (("moe",), ("route", "--case", "softmax", "softmax of 8")):
        done = bench(*words, "--quick", "--device", "cpu", "--plot", "a.png")
        assert done[0] == 0, done[2]
        header = (tmp_path / "a.png").read_bytes()[:24]
        assert header.startswith(b"\x89PNG")
        sizes.append(int.from_bytes(header[20:24], "big"))  # height
    assert sizes[0] == 2 * sizes[1]
