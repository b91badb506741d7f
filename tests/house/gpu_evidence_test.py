import pytest

import gpu_evidence


def test_evidence_is_kept_and_goes_stale(write, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_evidence, "gpu_name", lambda: "a GPU")
    write("tests/gpu/a_test.cpp")
    kernel = write("src/ops/a/sm90.cu", "one")
    assert "none yet" in gpu_evidence.look(tmp_path)[1]
    assert gpu_evidence.keep(tmp_path, gpu_evidence.device_hash(tmp_path))[0] == 0
    assert "were green" in gpu_evidence.look(tmp_path)[1]
    kernel.write_text("two")
    assert "stale" in gpu_evidence.look(tmp_path)[1]


def test_tests_built_from_other_sources_are_no_evidence(write, tmp_path):
    write("tests/gpu/a_test.cpp")
    kernel = write("src/ops/a/sm90.cu", "one")
    built = gpu_evidence.device_hash(tmp_path)
    kernel.write_text("two")
    assert gpu_evidence.keep(tmp_path, built)[0] == 1
    assert not (tmp_path / "tests/gpu/green.txt").exists()


def test_a_machine_without_a_gpu_gives_no_evidence(write, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_evidence, "gpu_name", lambda: None)
    write("tests/gpu/a_test.cpp")
    assert gpu_evidence.keep(tmp_path, gpu_evidence.device_hash(tmp_path))[0] == 1
    assert not (tmp_path / "tests/gpu/green.txt").exists()


def test_names_count(write, tmp_path):
    kernel = write("src/ops/a/sm90.cu", "one")
    first = gpu_evidence.device_hash(tmp_path)
    kernel.rename(kernel.with_name("portable.cu"))
    assert gpu_evidence.device_hash(tmp_path) != first


@pytest.mark.parametrize(
    "name",
    [
        "src/host/stream.cpp",
        "src/host/cuda/driver.h",
        "include/penstock/host/stream.h",
        "tests/gpu/stream_test.cpp",
        "tests/gpu/gate.h",
        "include/penstock/kit/ring.cuh",
        "src/ops/a/launch_cuda.cpp",
    ],
)
def test_what_the_gpu_tests_exercise_counts(write, tmp_path, name):
    before = gpu_evidence.device_hash(tmp_path)
    write(name, "one")
    assert gpu_evidence.device_hash(tmp_path) != before


@pytest.mark.parametrize(
    "name", ["src/measure/overlap.cpp", "tests/host/stream_test.cpp", "tests/gpu/green.txt"]
)
def test_the_rest_does_not(write, tmp_path, name):
    before = gpu_evidence.device_hash(tmp_path)
    write(name, "one")
    assert gpu_evidence.device_hash(tmp_path) == before
