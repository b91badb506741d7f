import pytest

import gpu_evidence


@pytest.fixture
def on_a_gpu(monkeypatch):
    monkeypatch.setattr(gpu_evidence, "gpu_name", lambda: "Some GPU, driver 1.2")
    monkeypatch.setattr(gpu_evidence, "cpu_name", lambda: "Some CPU with avx2")
    monkeypatch.setattr(gpu_evidence.platform, "python_version", lambda: "3.12")
    monkeypatch.setattr(gpu_evidence.importlib.metadata, "version",
                        {"torch": "2.11", "transformers": "5.17", "accelerate": "1.15"}.get)
    monkeypatch.setattr(gpu_evidence.platform, "freedesktop_os_release",
                        lambda: {"PRETTY_NAME": "Another OS"})


@pytest.fixture
def build(write, tmp_path):
    """Leaves what scripts/gpu_test.sh and CMake leave beside the binaries."""

    def build():
        write("build/gpu/bin/sources.txt", gpu_evidence.source_hash(tmp_path) + "\n")
        write("build/gpu/bin/toolchain.txt", "GCC 13.3.0 and CUDA 13.0.88 on Some OS\n")

    return build


def test_evidence_is_kept_and_goes_stale(write, build, tmp_path, on_a_gpu):
    kernel = write("src/ops/a/sm90.cu", "one")
    assert "none yet" in gpu_evidence.look(tmp_path)
    write("tests/gpu/a_test.cpp")
    build()
    assert gpu_evidence.keep(tmp_path, "here")[0] == 0
    assert gpu_evidence.look(tmp_path).startswith("GPU evidence: these sources passed on 20")
    kernel.write_text("two")
    assert "stale" in gpu_evidence.look(tmp_path)


@pytest.mark.parametrize("how, says", [
    ("here", "; built there with GCC 13.3.0 and CUDA 13.0.88 on Some OS; "),
    ("elsewhere", "; built elsewhere with GCC 13.3.0 and CUDA 13.0.88 on Some OS, and copied to "
                  "Another OS; "),
])
def test_evidence_names_the_machine_and_the_compiler(write, build, tmp_path, on_a_gpu, how, says):
    write("tests/gpu/a_test.cpp")
    build()
    gpu_evidence.keep(tmp_path, how)
    text = gpu_evidence.look(tmp_path)
    assert says in text
    assert ": Some GPU, driver 1.2; Some CPU with avx2; " in text
    assert "; Python 3.12, torch 2.11, transformers 5.17, accelerate 1.15; " in text
    assert text.endswith("; without the page in src/trace/page, which no GPU test reads")


@pytest.mark.parametrize("flags, says", [
    ("fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile", "avx2, avx512f, avx512_bf16, amx_bf16"),
    ("fpu avx2 avx", "avx2"), ("fpu", "none of AVX2 and later")])
def test_the_instruction_sets_of_the_cpu(write, flags, says):
    info = write("cpuinfo", "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: " + flags + "\n\n")
    assert gpu_evidence.cpu_name(info) == f"Some CPU with {says}"


def test_binaries_of_other_sources_are_no_evidence(write, build, tmp_path, on_a_gpu):
    write("tests/gpu/a_test.cpp")
    assert gpu_evidence.keep(tmp_path, "here")[0] == 1  # never built
    kernel = write("src/ops/a/sm90.cu", "one")
    build()
    kernel.write_text("two")
    assert gpu_evidence.keep(tmp_path, "here")[0] == 1
    assert not (tmp_path / "tests/gpu/green.txt").exists()


def test_a_machine_without_a_gpu_gives_no_evidence(write, build, tmp_path, on_a_gpu, monkeypatch):
    monkeypatch.setattr(gpu_evidence, "gpu_name", lambda: None)
    write("tests/gpu/a_test.cpp")
    build()
    assert gpu_evidence.keep(tmp_path, "here")[0] == 1
    assert not (tmp_path / "tests/gpu/green.txt").exists()


def test_runs_of_sanitizers_leave_a_trace(write, build, tmp_path, on_a_gpu):
    kernel = write("src/ops/a/sm90.cu", "one")
    assert list(gpu_evidence.look_at_checks(tmp_path)) == [
        f"Sanitizers: {part}: never recorded" for part in gpu_evidence.PARTS]
    write("tests/gpu/a_test.cpp")
    now = gpu_evidence.source_hash(tmp_path)
    assert gpu_evidence.checked(tmp_path, "races", "clean", now)[0] == 0
    build()
    assert gpu_evidence.checked(tmp_path, "memory", "failed", None)[0] == 0
    lines = list(gpu_evidence.look_at_checks(tmp_path))
    assert lines[0].startswith("Sanitizers: memory: failed on 20")
    assert lines[1].startswith("Sanitizers: races: clean on 20") and lines[1].endswith(
        ": Some GPU, driver 1.2")
    assert lines[2] == "Sanitizers: barriers: never recorded"
    kernel.write_text("two")
    assert list(gpu_evidence.look_at_checks(tmp_path))[1].endswith(
        "driver 1.2; stale: the sources have changed")
    assert gpu_evidence.checked(tmp_path, "memory", "clean", now)[0] == 1  # built from others
    assert gpu_evidence.checked(tmp_path, "memory", "clean", None)[0] == 1


def test_a_part_that_runs_again_replaces_its_line(write, tmp_path, on_a_gpu):
    write("tests/gpu/a_test.cpp")
    now = gpu_evidence.source_hash(tmp_path)
    for outcome in ("failed", "stopped", "clean"):
        assert gpu_evidence.checked(tmp_path, "ladders", outcome, now)[0] == 0
    assert len((tmp_path / "tests/gpu/sanitizers.txt").read_text().splitlines()) == 1
    assert list(gpu_evidence.look_at_checks(tmp_path))[-1].startswith("Sanitizers: ladders: clean on")


def test_sanitizers_without_a_gpu_leave_no_trace(write, tmp_path, on_a_gpu, monkeypatch):
    monkeypatch.setattr(gpu_evidence, "gpu_name", lambda: None)
    write("tests/gpu/a_test.cpp")
    assert gpu_evidence.checked(tmp_path, "races", "clean", gpu_evidence.source_hash(tmp_path))[0] == 1
    assert not (tmp_path / "tests/gpu/sanitizers.txt").exists()


def test_names_count(write, tmp_path):
    kernel = write("src/ops/a/sm90.cu", "one")
    first = gpu_evidence.source_hash(tmp_path)
    kernel.rename(kernel.with_name("portable.cu"))
    assert gpu_evidence.source_hash(tmp_path) != first


@pytest.mark.parametrize("other, same", [
    ("call({.a = 1}, b);  // why\n", True),
    ("call( {.a=1},\n      b );\n", True),
    ("call({.a = 1},/* why */b);\n", True),
    ("call({.a = 1}, c);\n", False),
    ("call({.a = 1}, \"b\");\n", False),
])
def test_layout_and_comments_do_not_count(write, tmp_path, other, same):
    write("src/a.cpp", "call({.a = 1}, b);\n")
    before = gpu_evidence.source_hash(tmp_path)
    write("src/a.cpp", other)
    assert (gpu_evidence.source_hash(tmp_path) == before) == same


def test_words_and_literals_stay_apart():
    assert gpu_evidence.bare("int a") != gpu_evidence.bare("inta")
    assert gpu_evidence.bare('say("a b")') != gpu_evidence.bare('say("ab")')
    assert gpu_evidence.bare("int/* */a") == gpu_evidence.bare("int a")


@pytest.mark.parametrize(
    "name",
    [
        "CMakeLists.txt",
        "cmake/PenstockCuda.cmake",
        "examples/gemm/support/shapes.h",
        "include/penstock/host/stream.h",
        "include/penstock/kit/ring.cuh",
        "python/penstock/transform.py",
        "python/src/transform.cpp",
        "src/host/cuda/driver.h",
        "src/measure/overlap.cpp",
        "src/ops/a/launch_cuda.cpp",
        "tests/gpu/gate.h",
        "tests/gpu/stream_test.cpp",
        "tests/bench/mixture_torch_test.py",
        "tests/python/gpu_test.py",
        "tests/support/gpu_run.py",
    ],
)
def test_what_the_gpu_tests_exercise_counts(write, tmp_path, name):
    before = gpu_evidence.source_hash(tmp_path)
    write(name, "one")
    assert gpu_evidence.source_hash(tmp_path) != before


@pytest.mark.parametrize("name", [
    "cli/main.cpp", "docs/results.md", "python/penstock/_core.pyi", "src/trace/page/page.css",
    "tests/gpu/green.txt", "tests/host/stream_test.cpp",
])
def test_the_rest_does_not(write, tmp_path, name):
    before = gpu_evidence.source_hash(tmp_path)
    write(name, "one")
    assert gpu_evidence.source_hash(tmp_path) == before
