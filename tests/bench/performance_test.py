"""What is written, and what is not."""

import json
import stat

import numpy
import pytest

from penstock.bench import Absent, Peer, Yardstick
from penstock.bench import _results
from penstock.bench._clock import CpuClock
from penstock.bench._performance import run_case
from penstock.bench._timing import Plan

from conftest import Doubling, double


def broken(x, out):
    double(x, out)
    out[-1] = numpy.nan


def test_the_file_has_the_shape_of_all_results(bench, operator, tmp_path):
    operator()
    code, out, err = bench("double", "--quick", "--device", "cpu", "--seed", 5, "--output", "r.json")
    assert code == 0, err
    results = json.loads((tmp_path / "r.json").read_text())
    assert stat.S_IMODE((tmp_path / "r.json").stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.glob("r.json*")] == ["r.json"]
    assert results["schema"] == 1 and results["name"] == "double" and results["seed"] == 5
    assert {"date", "commit"} <= set(results)
    assert {"gpu", "driver", "cuda", "cpu", "ceilings"} == set(results["machine"])
    assert results["machine"]["gpu"] == "none"
    assert results["machine"]["ceilings"]["host_copy_GBps"] > 0
    assert results["peers"] == {"numpy": numpy.__version__, "elsewhere": "absent (not installed)"}
    case, = results["cases"]
    assert case["case"] == "double" and case["params"] == {"elements": 1000}
    assert case["correct"] is True and 0 <= case["max_error"] <= case["tolerance"]
    for times in (case["ours"], case["peer"]["numpy"]):
        assert times["call_us_p10"] <= times["call_us"] <= times["call_us_p90"]
        assert 0 < times["host_us"] <= times["call_us"] and times["samples"] >= 5
        assert "gpu_us" not in times
    metrics = case["metrics"]
    assert metrics["bytes"] == 8000 and metrics["flop"] == 1000 and metrics["sustained_us"] > 0
    assert metrics["of_roof"] == pytest.approx(case["yardstick_us"] / case["ours"]["call_us"], rel=0.01)
    assert metrics["rotation"]["sets"] > 1


def test_the_table_has_every_peer_and_its_ratio(bench, operator):
    operator()
    code, out, err = bench("double", "--quick", "--device", "cpu")
    head, names, row = out.splitlines()
    assert code == 0 and "seed" in head
    assert names.split() == ["case", "ours", "roof", "%", "of", "roof", "sustained", "numpy",
                             "numpy/ours", "elsewhere", "elsewhere/ours"]
    assert row.startswith("double") and row.split()[-2:] == ["-", "-"]


def test_a_wrong_case_is_not_written_and_the_others_are(bench, operator, tmp_path):
    operator(lambda context: [Doubling(context, "good"),
                              Doubling(context, "bad", kernels={"default": broken})])
    code, out, err = bench("double", "--quick", "--device", "cpu", "--seed", 5, "--output", "r.json")
    assert code == 1
    assert [case["case"] for case in json.loads((tmp_path / "r.json").read_text())["cases"]] == [
        "good"]
    assert "bad: not measured: default: output 0: 1 of 1000 elements wrong" in err
    assert ("to repeat: python -m penstock.bench double --mode correctness --case bad --device cpu "
            "--seed 5 --quick") in err


def test_where_nothing_is_right_the_last_file_stays(bench, operator, tmp_path):
    operator(lambda context: [Doubling(context, kernels={"default": broken})])
    (tmp_path / "r.json").write_text("before")
    assert bench("double", "--quick", "--device", "cpu", "--output", "r.json")[0] == 1
    assert (tmp_path / "r.json").read_text() == "before"


def test_a_peer_that_is_wrong_is_left_out(bench, operator):
    operator(lambda context: [Doubling(context, peers={"liar": Peer("1", broken),
                                                       "crash": Peer("2", lambda x, out: 1 / 0)})])
    code, out, err = bench("double", "--quick", "--device", "cpu", "--json")
    case, = json.loads(out)["cases"]
    assert code == 0 and case["peer"] == {}
    assert set(case["metrics"]["left_out"]) == {"liar", "crash"}
    assert "liar is left out: output 0: 1 of 1000" in err and "ZeroDivisionError" in err


def test_a_yardstick_is_timed_and_not_checked(bench, operator):
    moved = []
    copy = Yardstick("9", lambda x, out: moved.append(x.nbytes))
    operator(lambda context: [Doubling(context, peers={"copy": copy})])
    code, out, err = bench("double", "--quick", "--device", "cpu", "--json")
    results = json.loads(out)
    assert code == 0 and "left out" not in err and results["peers"] == {"copy": "9"}
    assert results["cases"][0]["peer"]["copy"]["call_us"] > 0 and len(moved) > 5
    code, out, _ = bench("double", "--mode", "correctness", "--device", "cpu")
    assert code == 0 and "copy" not in out
    code, out, _ = bench("double", "--mode", "single_run", "--device", "cpu", "--kernel", "copy")
    assert code == 0 and "copy: 1 calls" in out


class GpuClock(CpuClock):
    """Says that a GPU took some time."""

    def gpu_us(self, run, expected_host_us):
        run()
        return 8.0

    def alone_us(self, run):
        run()
        return 12.0


def test_on_a_gpu_both_of_its_times_and_the_hosts_are_written(context):
    case = Doubling(context, kernels={"best": double, "other": double},
                    peers={"copy": Yardstick("9", lambda x, out: None)})
    entry = run_case(case, case.kernels(), GpuClock(), Plan.quick(), 1 << 16,
                     {"host_copy": 1e9}).entry
    for times in (entry["ours"], entry["peer"]["copy"], entry["metrics"]["kernels"]["other"]):
        assert times["gpu_us"] == 8 and times["alone_us"] == 12
        assert {"call_us", "host_us", "gpu_us_p10", "alone_us_p90"} <= set(times)
    assert entry["metrics"]["enqueue_us"] > 0 and entry["metrics"]["of_roof"] == 1  # 8000 bytes


class Sampled(Doubling):
    """Compares only the first elements; its roof is twice the time of its part."""

    yardstick, most_enqueued = "twice a part", 2

    def compared(self, result):
        return result[:10]

    def reference(self, inputs):
        self.tolerance = 0.5
        return 2 * inputs[:10].astype("f8")

    def roof_parts(self):
        return {"part": lambda x, out: self.noted.append("part")}

    def roof_of_parts(self, ceilings, parts_us):
        return 2 * parts_us["part"]

    def more_metrics(self):
        return {"extra": [1, 2]}


def test_a_case_may_compare_a_sample_and_time_the_parts_of_its_roof(context):
    noted = []

    def kernel(x, out):
        double(x, out)
        out[10:] = numpy.nan
        noted.append("kernel")

    case = Sampled(context, kernels={"best": kernel, "other": kernel})
    case.noted = noted
    plan = Plan(warm_up=1, samples=3, rest_seconds=0, sustained_seconds=1e-9, enqueued=20)
    entry = run_case(case, case.kernels(), GpuClock(), plan, 1 << 16, {"host_copy": 1e9}).entry
    assert entry["tolerance"] == 0.5 and entry["yardstick"] == "twice a part"
    assert entry["yardstick_us"] == 16 and entry["metrics"]["roof_parts_us"] == {"part": 8}
    assert entry["metrics"]["of_roof"] == 2 and entry["metrics"]["extra"] == [1, 2]
    assert entry["metrics"]["kernels"]["other"]["enqueue_us"] > 0
    # Warm-up and three samples of three calls; parts are not measured back to back.
    assert noted.count("part") == 1 + 3 * 3
    # Besides, two checks, and three blocks: of three calls, and of two that are enqueued.
    assert noted.count("kernel") == 2 * (2 + 1 + 3 * 3 + 3 * 3 + 3 * 2)


def test_variants_stand_beside_the_kernel_that_is_judged(bench, operator):
    kernels = {"default": double, "baseline": double}
    operator(lambda context: [Doubling(context, kernels=kernels)])
    case, = json.loads(bench("double", "--quick", "--device", "cpu", "--json")[1])["cases"]
    assert case["metrics"]["kernel"] == "default"
    assert case["metrics"]["kernels"]["baseline"]["call_us"] > 0
    code, out, _ = bench("double", "--quick", "--device", "cpu")
    assert "baseline/ours" in out
    case, = json.loads(bench("double", "--quick", "--device", "cpu", "--json", "--kernel",
                             "baseline")[1])["cases"]
    assert case["metrics"]["kernel"] == "baseline" and "kernels" not in case["metrics"]


def test_iterations_are_the_samples(bench, operator):
    operator()
    case, = json.loads(bench("double", "--quick", "--device", "cpu", "--json", "--iterations",
                             3)[1])["cases"]
    assert case["ours"]["samples"] == 3


def test_an_operator_may_have_a_shorter_plan(bench, operator):
    operator().plan = Plan(samples=6, sustained_seconds=0.01)
    for words, samples in (((), 6), (("--iterations", "5"), 5)):
        code, out, _ = bench("double", "--device", "cpu", "--json", *words)
        assert code == 0 and json.loads(out)["cases"][0]["ours"]["samples"] == samples


def test_a_peer_present_in_one_case_has_its_version(context):
    from penstock.bench._performance import versions

    assert versions([Doubling(context, peers={"p": Absent("too large")}),
                     Doubling(context, peers={"p": Peer("1.2", double)}),
                     Doubling(context, peers={"p": Absent("too small")})]) == {"p": "1.2"}


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("before")
    with pytest.raises(ValueError):
        _results.write(path, {"not a number": float("nan")})
    with pytest.raises(TypeError):
        _results.write(path, {"object": object()})
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"] and path.read_text() == "before"
