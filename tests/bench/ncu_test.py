"""The mode ncu, with scripts in the place of ncu and a GPU that is only said to be there."""

import json
import subprocess
import types
from pathlib import Path

import pytest

from penstock._measure import Limits
from penstock.bench import Peer, _modes, _ncu
from penstock.bench._counters import DRAM, parse
from penstock.bench import BenchError
from penstock.bench._profiling import Profiler

from conftest import Doubling, double

CEILINGS = Limits({"rates": {name: {"bytes_per_second": 4e12}
                             for name in ("host_copy", "device_copy")}}, False, [])
SAMPLES = Path(__file__).parent / "samples"
SAMPLE = SAMPLES / "raw.csv"
FAST = SAMPLE.read_text().replace('"128.00"', '"64.00"').replace('"384.00"', '"192.00"')

# Notes its words; makes a report of what would be in it, and prints that when it is imported.
STAND_IN = f"""
for word in "$@"; do echo "$word"; done >> words.txt
while [ $# -gt 0 ]; do
  if [ "$1" = --export ]; then cp {SAMPLE} "$2"; fi
  if [ "$1" = --import ]; then cat "$2"; fi
  shift
done
"""

# The same, with another sample for every kernel.
BY_KERNEL = f"""
while [ $# -gt 0 ]; do
  if [ "$1" = --export ]; then report=$2; fi
  if [ "$1" = --kernel ]; then cp "{SAMPLES}/$2.csv" "$report"; fi
  if [ "$1" = --import ]; then cat "$2"; fi
  shift
done
"""


@pytest.fixture
def gpu(monkeypatch, operator):
    device = types.SimpleNamespace(kind="cuda", name="cuda:0", capabilities={"name": "GPU"})
    operator(lambda context: [Doubling(context, kernels={"default": double, "other": double})])
    monkeypatch.setattr("penstock.bench._cli._core.Device", lambda name: device)
    monkeypatch.setattr(_modes, "_ceilings", lambda context: CEILINGS)


def test_a_kernel_is_profiled_and_its_report_kept(bench, program, gpu, tmp_path):
    program("ncu", STAND_IN)
    code, out, err = bench("double", "--mode", "ncu", "--seed", 4)
    assert code == 0, err
    words = (tmp_path / "words.txt").read_text().splitlines()
    assert words[words.index("--clock-control") + 1] == "none"
    assert words[words.index("--target-processes") + 1] == "all"
    metrics = words[words.index("--metrics") + 1].split(",")
    assert "gpu__time_duration.sum" in metrics and "dram__bytes_read.sum" in metrics
    run = words[words.index("-m"):words.index("--import")]
    assert run == ["-m", "penstock.bench", "double", "--mode", "single_run", "--case", "double",
                   "--kernel", "default", "--device", "cuda:0", "--seed", "4", "--iterations", "3",
                   "--warm-up", "1"]
    assert (tmp_path / "double_double_default.ncu-rep").is_file()
    assert "512 us" in out and "3659.7 GB/s" in out
    assert "of 4000.0 GB/s measured" in out and "91.5 %" in out and "87.5 %" in out


def test_two_kernels_stand_side_by_side(bench, program, gpu, tmp_path):
    program("ncu", STAND_IN)
    code, out, _ = bench("double", "--mode", "ncu", "--kernel", "default", "--kernel", "other")
    assert code == 0 and out.splitlines()[1].split() == ["default", "other", "other/default"]
    assert "1.000" in out
    code, out, _ = bench("double", "--mode", "ncu", "--json", "--kernel", "other")
    found = json.loads(out)  # a results file
    assert found["schema"] == 1 and {"date", "commit", "machine", "peers"} <= found.keys()
    case, = found["cases"]
    assert case["case"] == "double" and case["peer"] == {}
    assert case["ours"] == {"gpu_us": 170.667}  # 512 us, three calls
    assert case["profiles"]["other"]["launches"] == 2
    assert case["reports"] == {"other": "double_double_other.ncu-rep"}


def cells(out, label):
    line, = (line for line in out.splitlines() if line.startswith(label))
    return line.removeprefix(label).split()


def test_the_baseline_and_the_best_are_compared(bench, program, gpu, operator):
    program("ncu", BY_KERNEL)
    operator(lambda context: [Doubling(context, kernels={"best": double, "baseline": double})])
    code, out, err = bench("double", "--mode", "ncu", "--kernel", "baseline", "--kernel", "best")
    assert code == 0, err
    assert out.splitlines()[1].split() == ["baseline", "best", "best/baseline"]
    assert cells(out, "launches") == ["3", "3", "1.000"]
    assert cells(out, "total time") == ["300", "us", "120", "us", "0.400"]
    assert cells(out, "DRAM read") == ["180.00", "MB", "180.00", "MB", "1.000"]
    assert cells(out, "DRAM rate") == ["1000.0", "GB/s", "2500.0", "GB/s", "2.500"]
    assert cells(out, "share of 4000.0 GB/s measured") == ["25.0", "%", "62.5", "%", "2.500"]
    assert cells(out, "DRAM, % of peak") == ["20.0", "%", "50.0", "%", "2.500"]
    code, out, _ = bench("double", "--mode", "ncu", "--kernel", "best", "--compare",
                         "double_double_baseline.ncu-rep")
    assert code == 0 and cells(out, "total time")[-1] == "2.500"


def test_profiles_of_a_peer_are_results(bench, program, gpu, operator):
    program("ncu", BY_KERNEL)
    peers = {"baseline": Peer("1.2", double), "third": Peer("3", double)}
    operator(lambda context: [Doubling(context, kernels={"best": double}, peers=peers)])
    code, out, err = bench("double", "--mode", "ncu", "--json", "--kernel", "baseline", "--kernel",
                           "best")
    assert code == 0, err
    found = json.loads(out)
    assert found["peers"] == {"baseline": "1.2"}
    case, = found["cases"]
    assert case["ours"] == {"gpu_us": 40.0} and case["peer"] == {"baseline": {"gpu_us": 100.0}}
    assert list(case["profiles"]) == ["baseline", "best"]


def test_of_several_cases_the_share_of_the_memory_stands_beside_the_time(bench, program, gpu,
                                                                         operator, tmp_path):
    program("ncu", BY_KERNEL)
    operator(lambda context: [Doubling(context, name, kernels={"best": double, "baseline": double})
                              for name in ("a, b", "c", "d")])
    code, out, err = bench("double", "--mode", "ncu", "--case", "a, b", "c", "--kernel", "best",
                           "--kernel", "baseline")
    assert code == 0, err
    head, *rows = (line.split("  ") for line in out.splitlines()[-5:])
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        [case, kernel, *found] for case in ("a, b", "c") for kernel, found in (
            ("best", ["40 us", "2500.0 GB/s", "62.5 %", "50.0 %"]),
            ("baseline", ["100 us", "1000.0 GB/s", "25.0 %", "20.0 %"]))]
    assert (tmp_path / "double_a-b_best.ncu-rep").is_file()
    code, _, err = bench("double", "--mode", "ncu", "--case", "c", "d", "--compare", "x.ncu-rep")
    assert code == 2 and "--compare: expected one case, given 2 cases" in err


@pytest.fixture
def counted(monkeypatch, program, operator):
    """Counters in mode performance, as if the CPU had them."""
    operator(lambda context: [Doubling(context, kernels={"best": double})])

    def install(script):
        path = program("ncu", script)
        monkeypatch.setattr(_modes, "_profiler", lambda subject, context: Profiler(
            str(path), subject, context))
        monkeypatch.setattr(_modes, "_ceilings", lambda context: CEILINGS)

    return install


def test_counters_stand_beside_the_times(bench, counted):
    counted(BY_KERNEL)
    code, out, err = bench("double", "--quick", "--device", "cpu", "--counters", "--json")
    assert code == 0, err
    case, = json.loads(out)["cases"]
    assert case["ours"]["call_us"] > 0
    found = case["metrics"]["counters"]
    assert found["of_ceiling"] == pytest.approx(0.625) and found[DRAM] == pytest.approx(50)
    code, out, _ = bench("double", "--quick", "--device", "cpu", "--counters")
    assert "DRAM" in out and "50.0 %" in out


def test_counters_may_be_of_some_cases(bench, counted):
    counted(BY_KERNEL)
    code, out, _ = bench("double", "--quick", "--device", "cpu", "--counters", "double", "--json")
    assert code == 0 and "counters" in json.loads(out)["cases"][0]["metrics"]
    code, _, err = bench("double", "--quick", "--device", "cpu", "--counters", "other")
    assert code == 2 and "--counters: expected" in err


def test_times_are_kept_where_ncu_fails(bench, counted):
    counted("echo ERR_NVGPUCTRPERM; exit 1")
    code, out, err = bench("double", "--quick", "--device", "cpu", "--counters", "--json")
    case, = json.loads(out)["cases"]
    assert code == 0 and case["ours"]["call_us"] > 0
    assert "NVreg_RestrictProfilingToAdminUsers=0" in case["metrics"]["counters"]["absent"]
    assert "double: ncu may not read" in err


def test_counters_need_a_gpu_and_their_mode(bench, operator, program):
    operator()
    program("ncu", BY_KERNEL)
    code, _, err = bench("double", "--device", "cpu", "--counters")
    assert code == 2 and "--device: expected a GPU" in err
    code, _, err = bench("double", "--device", "cpu", "--counters", "--mode", "correctness")
    assert code == 2 and "--counters: expected --mode performance" in err


def test_another_report_stands_beside(bench, program, gpu, tmp_path):
    program("ncu", STAND_IN)
    (tmp_path / "before.ncu-rep").write_text(FAST)
    code, out, err = bench("double", "--mode", "ncu", "--output", "now.ncu-rep", "--compare",
                           "before.ncu-rep")
    assert code == 0, err
    assert (tmp_path / "now.ncu-rep").is_file()
    time, = (line for line in out.splitlines() if line.startswith("total time"))
    assert time.split()[-1] == "0.500"


@pytest.mark.parametrize("script, said", [
    ('echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1',
     "NVreg_RestrictProfilingToAdminUsers=0"),
    ("echo out of luck >&2; exit 3", "ncu ended with status 3: out of luck"),
    ("exit 0", "no such file"),
    (STAND_IN.replace("cp ", "head -c 900 ").replace('"$2"; fi', '> "$2"; fi', 1), "ncu-rep"),
])
def test_what_ncu_cannot_do_is_said(bench, program, gpu, script, said):
    program("ncu", script)
    code, out, err = bench("double", "--mode", "ncu")
    assert code == 1 and out == ""
    assert err.count("\n") == 1 and said in err


def test_without_ncu_it_says_where_it_is(bench, gpu, monkeypatch):
    monkeypatch.setenv("PATH", "")
    code, _, err = bench("double", "--mode", "ncu")
    assert code == 1 and "ncu is not on PATH" in err and "nsight-compute" in err


def test_a_cpu_has_no_counters(bench, operator, program):
    operator()
    program("ncu", STAND_IN)
    code, _, err = bench("double", "--mode", "ncu", "--device", "cpu")
    assert code == 2 and "--device: expected a GPU" in err


def test_one_report_has_one_kernel(bench, program, gpu):
    program("ncu", STAND_IN)
    code, _, err = bench("double", "--mode", "ncu", "--output", "a.ncu-rep", "--kernel", "default",
                         "--kernel", "other")
    assert code == 2 and "--output" in err
    code, _, err = bench("double", "--mode", "ncu", "--output", "a.json")
    assert code == 2 and "ends in .ncu-rep" in err


def test_numbers_are_read_in_one_language(monkeypatch):
    seen = {}

    def run(command, **options):
        seen.update(options["env"])
        return subprocess.CompletedProcess(command, 0, SAMPLE.read_text(), "")

    monkeypatch.setattr(subprocess, "run", run)
    assert _ncu.read("ncu", SAMPLE).launches
    assert seen["LC_ALL"] == "C.UTF-8"


def test_a_plot_needs_matplotlib(bench, program, gpu, monkeypatch):
    program("ncu", STAND_IN)
    monkeypatch.setattr("penstock.bench._plot.find_spec", lambda name: None)
    code, _, err = bench("double", "--mode", "ncu", "--plot", "a.png")
    assert code == 1 and "pip install matplotlib" in err


def test_an_absent_report_is_named(tmp_path):
    with pytest.raises(BenchError, match="gone.ncu-rep"):
        _ncu.read("ncu", tmp_path / "gone.ncu-rep")


def test_profiles_of_unknown_shares_are_shown():
    text = SAMPLE.read_text().replace('"50.00"', '"n/a"')
    table = _ncu.table({"a": parse(text, "a")}, 4e12)
    assert next(line for line in table.splitlines() if "L2" in line).split()[-1] == "-"
    assert "lts__t_sector_hit_rate.pct" not in _ncu.as_json(parse(text, "a"), 4e12)
