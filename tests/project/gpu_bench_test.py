"""Benchmarks run in parts that can be continued, and their results say which sources they measured."""

import ast
import json
import tarfile
import time
from pathlib import Path

import benchmarks
import gpu_bench
import pytest
import python_sources

HEAD = {"schema": 1, "name": "x", "commit": "unknown", "peers": {}, "machine": {}, "date": "d"}


@pytest.fixture
def tree(write, tmp_path, monkeypatch):
    """A small tree with three benchmark programs, each of which writes results and counts its runs."""
    monkeypatch.setattr(benchmarks, "LADDERS", ())
    monkeypatch.setattr(gpu_bench, "make_pages", lambda root: (root / "pages").touch())
    for name in ("one", "two", "three"):
        write(f"bench/{name}.cpp", '#include "support/shared.h"\n')
        program(tmp_path, f"bench_{name}", f"echo {name} >>{tmp_path}/runs\n" + results_script())
    write("bench/support/shared.h", "int shared;  // a comment\n")
    write("bench/support/shared.cpp", "int body = 1;\n")
    return tmp_path


def results_script(**more):
    return f"cat >\"$2\" <<'END'\n{json.dumps(HEAD | {'cases': []} | more)}\nEND\n"


def program(root, name, script):
    path = root / benchmarks.BIN / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)


def runs(root):
    file = root / "runs"
    return file.read_text().split() if file.is_file() else []


def fresh():
    """What a new process starts with."""
    for function in (benchmarks.code_of, benchmarks.includes_of, benchmarks.c_files,
                     python_sources.tree_of, python_sources.binding_sources):
        function.cache_clear()


def run(tree, *words):
    fresh()
    return gpu_bench.main([str(word) for word in words], tree)


def test_every_benchmark_of_the_tree_is_known():
    known = benchmarks.every()
    results = {path.stem for path in (benchmarks.ROOT / "bench/results").glob("*.json")}
    assert results <= set(known | benchmarks.MEASURED_ELSEWHERE)
    assert {"overlap", "gemm", "ladder_host", "resample", "loading"} <= set(known)
    for benchmark in known.values():
        for start in benchmark.start:
            assert (benchmarks.ROOT / start).exists(), start


def sources(name, root=benchmarks.ROOT):
    found = benchmarks.closure(root, benchmarks.every(root)[name].start)
    return {path.relative_to(root).as_posix() for path in found}


def test_results_depend_on_what_is_included_and_implemented():
    kernel = sources("overlap-kernel")
    assert {"bench/overlap-kernel_cuda.cpp", "bench/support/results.cpp", "examples/copy/12_ring_sm90.cu",
            "include/penstock/kit/ring.h", "src/host/pipeline.cpp"} <= kernel
    assert not any(path.startswith("src/ops/resample/") for path in kernel)
    assert "src/ops/resample/tile.cuh" in sources("resample")


def test_an_operator_depends_on_its_own_part_of_the_package():
    resample, moe = sources("resample"), sources("moe")
    assert {"python/penstock/bench/_timing.py", "python/penstock/bench/operators/resample.py",
            "python/penstock/bench/resampling/triton_peer.py", "python/penstock/_resample.py",
            "python/penstock/_resample_torch.py", "python/src/resample.cpp", "python/src/device.cpp",
            "src/host/stream.cpp"} <= resample
    assert {"python/penstock/_moe_torch.py", "python/penstock/_route.py", "python/src/moe.cpp",
            "python/src/route.cpp", "include/penstock/ops/moe.h"} <= moe
    for mine, others in ((resample, ("moe", "route", "mixture")), (moe, ("resampl", "streamed"))):
        assert not [path for path in mine if any(other in path for other in others)]
    assert "python/src/transfers.cpp" in sources("iterate")
    gemm, transform, copy = sources("gemm"), sources("transform"), sources("copy")
    assert {"python/penstock/bench/products/cublas_lt.py", "python/penstock/_gemm_torch.py",
            "python/src/gemm.cpp", "include/penstock/kit/gemm/kernel.cuh"} <= gemm
    assert {"python/penstock/bench/elementwise/functions.py", "python/src/elementwise.cpp",
            "bench/peers/cub.cu", "src/ops/transform/sm90.cu"} <= transform
    assert {"python/src/transfers.cpp", "bench/peers/cub.cu", "src/ops/transform/sm90.cu"} <= copy
    assert not {"bench/peers/cub.cu", "src/ops/transform/sm90.cu"} & gemm
    attention = sources("attention")
    assert {"python/penstock/_attention_torch.py", "python/src/attention.cpp",
            "python/penstock/bench/prefill/flash_peer.py", "src/ops/attention/sm90_kernel.cuh"} <= attention
    assert not [path for path in attention if "moe" in path or "mixture" in path]
    assert {"python/penstock/_moe.py", "python/src/moe.cpp"} <= sources("python")


PACKAGE = {
    "__init__.py": "from ._one import one as one\nfrom ._two import two as alias\nfrom ._core import Three",
    "_one.py": "from . import _core\ndef one(): import penstock._late as late; return _core.one(late)",
    "_two.py": "from . import _core\ndef two(): return _core.two()",
    "_late.py": "x = 1",
    "bench/__main__.py": "from .harness import run",
    "bench/harness.py": "def run(): pass",
    "bench/operators/one.py": "from ... import one\nfrom ..cases import shape",
    "bench/operators/two.py": "import penstock\ntwo = penstock.alias, penstock.Three",
    "bench/cases.py": "shape = 1",
}


@pytest.fixture
def package(tree, write):
    for name, text in PACKAGE.items():
        write(f"python/penstock/{name}", f"{text}\n")
    for name in ("one", "two", "Three"):
        write(f"python/src/{name}.cpp", f'#include "bindings.h"\n#include "shared.h"\n'
                                        f'void bind() {{ m.def("{name}"); }}\n')
    write("python/src/bindings.h", "void bind_one(); void bind_two();\n")
    write("python/src/shared.h", "int shared;\n")
    write("python/src/shared.cpp", "int shared = 1;\n")
    return tree


@pytest.mark.parametrize("changed, stale", [
    ("python/penstock/_one.py", "one"), ("python/penstock/_two.py", "two"),
    ("python/penstock/_late.py", "one"), ("python/penstock/bench/cases.py", "one"),
    ("python/penstock/bench/operators/two.py", "two"),
    ("python/penstock/bench/harness.py", "one two"), ("python/penstock/__init__.py", ""),
    ("python/src/one.cpp", "one"), ("python/src/two.cpp", "two"), ("python/src/Three.cpp", "two"),
    ("python/src/shared.h", "one two"), ("python/src/shared.cpp", "one two"),
    ("python/src/bindings.h", ""),
])
def test_results_of_an_operator_are_stale_if_what_it_imports_changes(package, changed, stale):
    def hashes():
        fresh()
        known = benchmarks.every(package)
        return {name: known[name].sources_hash(package) for name in ("one", "two")}

    before = hashes()
    path = package / changed
    path.write_text(path.read_text() + ("more = 1\n" if path.suffix == ".py" else "int more;\n"))
    after = hashes()
    assert [name for name in before if before[name] != after[name]] == stale.split()


def test_names_that_the_package_uses_of_its_extension_are_bound_somewhere():
    root = benchmarks.ROOT
    used = {name for path in (root / "python/penstock").rglob("*.py")
            for module, name in python_sources.names_used(root, path)
            if module == python_sources.EXTENSION}
    unknown = [name for name in used if not list(python_sources.binding(root, name))]
    listed = (root / "python/src/module.cpp").read_text()
    assert len(used) > 20 and [name for name in unknown if f'"{name}"' not in listed] == []


def test_everything_runs_once_and_then_only_what_changed(tree, capfd):
    assert run(tree) == 0 and runs(tree) == ["one", "three", "two"]
    document = json.loads((tree / "bench/results/one.json").read_text())
    assert document["sources"] and document["seconds"] >= 0 and (tree / "pages").exists()
    assert run(tree) == 0 and len(runs(tree)) == 3

    (tree / "bench/support/shared.h").write_text("int  shared;  // other words\n")
    assert run(tree) == 0 and len(runs(tree)) == 3, "comments and layout do not count"
    (tree / "bench/two.cpp").write_text("int two;\n")
    assert run(tree) == 0 and runs(tree)[3:] == ["two"]
    (tree / "bench/support/shared.cpp").write_text("int body = 2;\n")
    capfd.readouterr()
    assert run(tree, "--stale") == 0
    assert "on other sources: one, three, attention_profiles, resample_profiles" in capfd.readouterr().out
    assert run(tree) == 0 and sorted(runs(tree)[4:]) == ["one", "three"]
    assert run(tree, "one", "--again") == 0 and runs(tree)[6:] == ["one"]


def test_results_of_another_commit_are_stale_if_asked_for(tree, capfd):
    assert run(tree, "--commit", "abcdef") == 0 and len(runs(tree)) == 3
    assert json.loads((tree / "bench/results/one.json").read_text())["commit"] == "abcdef"
    assert run(tree, "--commit", "abcdef123", "--one-commit") == 0 and len(runs(tree)) == 3
    assert run(tree, "--commit", "fedcba") == 0 and len(runs(tree)) == 3
    assert run(tree, "--commit", "fedcba", "--one-commit", "--budget", 60) in (0, 3)
    assert run(tree, "--commit", "fedcba", "--one-commit") == 0 and len(runs(tree)) == 6
    assert json.loads((tree / "bench/results/one.json").read_text())["commit"] == "fedcba"
    path = tree / "bench/results/one.json"
    path.write_text(path.read_text().replace("fedcba", "fedcba-dirty"))
    assert benchmarks.state(benchmarks.every(tree)["one"], path.parent, tree, "fedcba") == "stale"
    with pytest.raises(SystemExit):
        run(tree, "--one-commit")
    assert "expected --commit ID" in capfd.readouterr().err


def test_what_was_never_measured_comes_first(tree, write):
    assert run(tree, "one") == gpu_bench.DONE
    write("bench/support/shared.cpp", "int body = 2;\n")
    assert run(tree) == gpu_bench.DONE
    assert runs(tree) == ["one", "three", "two", "one"]


def test_a_budget_stops_between_benchmarks_and_the_next_call_continues(tree, capfd):
    assert run(tree, "--budget", 60) == 3 and runs(tree) == ["one"], "others may take two minutes"
    assert "run the same command again" in capfd.readouterr().out
    assert run(tree, "--budget", 60) == 3 and runs(tree) == ["one", "three"]
    assert run(tree, "--budget", 60) == 0 and runs(tree) == ["one", "three", "two"]


def test_names_may_follow_options(tree):
    assert run(tree, "--budget", 600, "three", "--commit", "fedcba", "one") == gpu_bench.DONE
    assert runs(tree) == ["three", "one"]


def test_what_outlasts_the_budget_is_ended_with_all_its_processes(tree, capfd):
    program(tree, "bench_one", f"sleep 30 & echo $! >{tree}/pid; wait")
    begin = time.monotonic()
    assert run(tree, "one", "--budget", 1) == 1
    assert time.monotonic() - begin < 25
    assert "longer than the budget" in capfd.readouterr().out
    status = Path(f"/proc/{(tree / 'pid').read_text().strip()}/stat")
    while status.exists() and status.read_text().rsplit(")")[-1].split()[0] != "Z":
        assert time.monotonic() - begin < 25
        time.sleep(0.1)


def test_a_benchmark_that_fails_leaves_no_file_and_the_others_run(tree, capfd):
    program(tree, "bench_one", 'echo half >"$2"; exit 7')
    (tree / "bench/results").mkdir()
    assert run(tree) == 1 and runs(tree) == ["three", "two"]
    assert "one: failed: one: exit status 7" in capfd.readouterr().out
    names = {path.name for path in (tree / "bench/results").iterdir()}
    assert names == {"two.json", "three.json"}
    assert not list((tree / "build/bench/parts").glob("one*"))


def test_a_ladder_that_fails_leaves_no_file(tree, monkeypatch, write):
    monkeypatch.setattr(benchmarks, "LADDERS", ("copy",))
    write("examples/copy/01.cu")
    write("examples/support/x.h")
    program(tree, "penstock", "echo '{\"rungs\": ['; exit 1")
    assert run(tree, "ladder_copy") == 1
    assert not [path for path in tree.rglob("*ladder_copy*") if path.is_file()]


@pytest.mark.parametrize("ladder", ["copy", "attention", "decode"])
@pytest.mark.parametrize("ncu", [None, "/usr/bin/ncu"])
def test_ladders_of_attention_have_counters_where_there_is_ncu(tree, monkeypatch, ladder, ncu):
    monkeypatch.setattr(gpu_bench.shutil, "which", lambda name: ncu)
    part = gpu_bench.Part(benchmarks.Benchmark(f"ladder_{ladder}", "ladder", ()), 1, 1)
    command, _, _ = gpu_bench.Bench(tree).command(part, None)
    assert ("--counters" in command) == (ncu is not None and ladder != "copy")


def test_profiles_are_of_kernels_and_peers(tree, monkeypatch):
    monkeypatch.delenv("PEERS", raising=False)
    monkeypatch.setattr(gpu_bench.shutil, "which", lambda name: name)
    benchmark = benchmarks.every()["attention_profiles"]
    words, folder, printed = gpu_bench.Bench(tree).command(gpu_bench.Part(benchmark, 1, 1), None)
    assert words[1:] == ["bench", "attention", "--mode", "ncu", "--kernel", "best", "--kernel",
                         "FlashAttention", "--case", "d128, 4096, full", "d128, 4096, causal", "--json"]
    assert printed and folder == tree / "build/profiles"
    monkeypatch.setattr(gpu_bench.Bench, "has_package", lambda self, name: True)
    assert "PEERS" in gpu_bench.Bench(tree).obstacle("attention_profiles")
    monkeypatch.setenv("PEERS", "/somewhere")
    assert "PEERS" not in gpu_bench.Bench(tree).obstacle("attention_profiles")
    source = (benchmarks.ROOT / "python/penstock/bench/operators/resample.py").read_text()
    assert all(case.split(",")[0] in source for case in benchmarks.PROFILED["resample"][1])


def test_an_operator_runs_in_parts_which_become_one_file(tree, monkeypatch, write):
    monkeypatch.setattr(benchmarks, "CASES_PER_PART", 1)
    monkeypatch.setattr(benchmarks, "LARGER_PARTS", {"op": 2})
    write("python/penstock/bench/operators/op.py", '"""Words."""\nx = 1\n')
    monkeypatch.setattr(gpu_bench.Bench, "obstacle", lambda self, name: "")
    program(tree, "penstock", f"""\
if [ "$3" = --list ]; then echo '{{"op": {{"cases": {{"a": {{}}, "b": {{}}, "c": {{}}}}}}}}'; exit; fi
echo "$@" >>{tree}/calls
case "$*" in
  *"--case a b"*) [ -e {tree}/broken ] && exit 1; cases='{{"case": "a"}}, {{"case": "b"}}';;
  *) cases='{{"case": "c"}}';;
esac
printf '{{"commit": "unknown", "peers": {{}}, "cases": [%s], "dropped": [{{"case": "d"}}]}}' "$cases" >"$4"
""")
    assert run(tree, "op", "--commit", "abc") == 0
    document = json.loads((tree / "bench/results/op.json").read_text())
    assert [case["case"] for case in document["cases"]] == ["a", "b", "c"]
    assert document["commit"] == "abc" and len(document["dropped"]) == 2
    first, second = (tree / "calls").read_text().splitlines()
    seed = first.split("--seed ")[1].split()[0]
    assert f"--seed {seed}" in second

    (tree / "python/penstock/bench/operators/op.py").write_text('"""Others."""\nx = 2\n')
    (tree / "broken").touch()
    assert run(tree, "op") == 1
    assert json.loads((tree / "bench/results/op.json").read_text()) == document


@pytest.mark.parametrize("on_cpu", [(), ("op",)])
def test_operators_of_the_cpu_are_listed_and_measured_there(tree, monkeypatch, write, on_cpu):
    monkeypatch.setattr(benchmarks, "ON_CPU", on_cpu)
    write("python/penstock/bench/operators/op.py", "x = 1")
    monkeypatch.setattr(gpu_bench.Bench, "obstacle", lambda self, name: "")
    program(tree, "penstock", f"""\
echo "$@" >>{tree}/calls
if [ "$3" = --list ]; then echo '{{"op": {{"cases": {{"a": {{}}}}}}}}'; exit; fi
printf '{{"commit": "unknown", "peers": {{}}, "cases": [{{"case": "a"}}]}}' >"$4"
""")
    assert run(tree, "op") == 0
    calls = (tree / "calls").read_text().splitlines()
    assert len(calls) >= 2 and all(("--device cpu" in call) == bool(on_cpu) for call in calls)


def test_operators_find_the_library_of_cub_if_it_is_built(tree, monkeypatch):
    monkeypatch.delenv("PENSTOCK_CUB", raising=False)
    assert "PENSTOCK_CUB" not in gpu_bench.Bench(tree).environment
    library = tree / benchmarks.CUB_LIBRARY
    library.touch()
    assert gpu_bench.Bench(tree).environment["PENSTOCK_CUB"] == str(library)
    monkeypatch.setenv("PENSTOCK_CUB", "other.so")
    assert gpu_bench.Bench(tree).environment["PENSTOCK_CUB"] == "other.so"


def test_results_go_to_another_folder_and_come_back_as_one_archive(tree, write, capfd):
    write("docs/tutorial/traces/x.json", "{}")
    assert run(tree, "one", "--output", tree / "out") == 0
    assert (tree / "out/one.json").is_file() and not (tree / "bench/results/one.json").exists()
    assert not (tree / "pages").exists()
    assert run(tree, "two", "--output", tree / "out2", "--pack", tree / "r.tgz") == 0
    with tarfile.open(tree / "r.tgz") as archive:
        assert sorted(archive.getnames()) == ["results/one.json", "results/two.json"]
    (tree / "bench/results").mkdir()
    assert run(tree, "--import", tree / "r.tgz") == 0 and (tree / "pages").exists()
    assert "taken: one, two" in capfd.readouterr().out
    assert run(tree, "one", "two") == 0 and runs(tree) == ["one", "two"], "current, not run again"


def test_wrong_usage_names_what_is_there(tree, capfd):
    assert run(tree, "none") == 2
    assert "expected one of one, three, two" in capfd.readouterr().err
    assert run(tree, "--import", tree / "nothing") == 2
    assert "--import: expected an archive or a folder" in capfd.readouterr().err


def test_a_benchmark_that_cannot_run_here_says_why(tree, capfd):
    (tree / benchmarks.BIN / "bench_one").unlink()
    assert run(tree) == 0
    assert "== one: not run: build/gpu/bin/bench_one is not built" in capfd.readouterr().out
    assert run(tree, "one") == 1


def test_python_sources_have_one_hash_in_every_version():
    """The machine that measures may have a newer Python, whose syntax trees have more fields."""
    tree = ast.parse("def f(x):  # a comment\n    return [x]")
    assert benchmarks.shape_of(tree) == (
        "Module(body=[FunctionDef(name='f',args=arguments(args=[arg(arg='x')]),"
        "body=[Return(value=List(elts=[Name(id='x',ctx=Load())],ctx=Load()))])])")
    assert benchmarks.shape_of(ast.parse("f(x=1)")) != benchmarks.shape_of(ast.parse("f(x=2)"))
