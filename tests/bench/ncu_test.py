"""The mode ncu, with scripts in the place of ncu and a GPU that is only said to be there."""

import json
import subprocess
import types
from pathlib import Path

import pytest

from penstock.bench import _modes, _ncu
from penstock.bench._counters import parse
from penstock.bench._failure import Failure

from conftest import Doubling, double

SAMPLE = Path(__file__).parent / "samples" / "raw.csv"
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


@pytest.fixture
def gpu(monkeypatch, operator):
    device = types.SimpleNamespace(kind="cuda", name="cuda:0", capabilities={"name": "GPU"})
    operator(lambda context: [Doubling(context, kernels={"default": double, "other": double})])
    monkeypatch.setattr("penstock.bench._cli._core.Device", lambda name: device)
    monkeypatch.setattr(_modes, "_ceilings", lambda context: {"device_copy": 4e12})


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
    assert json.loads(out)["profiles"]["other"]["launches"] == 2


def test_another_report_stands_beside(bench, program, gpu, tmp_path):
    program("ncu", STAND_IN)
    (tmp_path / "before.ncu-rep").write_text(FAST)
    code, out, err = bench("double", "--mode", "ncu", "--output", "now.ncu-rep", "--compare",
                           "before.ncu-rep")
    assert code == 0, err
    assert (tmp_path / "now.ncu-rep").is_file()
    time, = (line for line in out.splitlines() if line.startswith("time"))
    assert time.split()[-1] == "0.500"


@pytest.mark.parametrize("script, said", [
    ('echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1',
     "NVreg_RestrictProfilingToAdminUsers=0"),
    ("echo out of luck >&2; exit 3", "ncu ended with 3: out of luck"),
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
    with pytest.raises(Failure, match="gone.ncu-rep"):
        _ncu.read("ncu", tmp_path / "gone.ncu-rep")


def test_profiles_of_unknown_shares_are_shown():
    text = SAMPLE.read_text().replace('"50.00"', '"n/a"')
    table = _ncu.table({"a": parse(text, "a")}, 4e12)
    assert next(line for line in table.splitlines() if "L2" in line).split()[-1] == "-"
    assert "lts__t_sector_hit_rate.pct" not in _ncu.as_json({"a": parse(text, "a")}, 4e12)["a"]
