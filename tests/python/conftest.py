import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import penstock
import penstock.hf

# A shell ignores Ctrl-C for what it runs in the background, and every child inherits that; the
# programs that the tests start are to see it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--require-gpu", action="store_true",
                     help="fail, instead of skipping tests, if there is no GPU or no torch for it")
    parser.addoption("--shard", metavar="I/N", default="0/1", type=_shard,
                     help="run every Nth of the selected tests, from test I on")


def _shard(text):
    first, count = (int(number) for number in text.split("/"))
    if not 0 <= first < count:
        raise ValueError(f"--shard: expected I/N with 0 <= I < N, got {text}")
    return first, count


def pytest_configure(config):
    if not config.getoption("--require-gpu"):
        return
    if reason := penstock.Device.why_no_gpu():
        raise pytest.UsageError(f"--require-gpu: expected a GPU: {reason}")
    try:
        import torch
    except ImportError as error:
        raise pytest.UsageError(f"--require-gpu: expected torch: {error}") from None
    if not torch.cuda.is_available():
        raise pytest.UsageError(f"--require-gpu: torch {torch.__version__} cannot use the GPU")


@pytest.hookimpl(tryfirst=True)  # before -m selects by markers
def pytest_collection_modifyitems(items):
    for item in items:
        if "torch" in item.fixturenames or hasattr(item.module, "torch"):
            item.add_marker("torch")


@pytest.hookimpl(specname="pytest_collection_modifyitems", trylast=True)  # of the selected ones
def pytest_collection_take_shard(config, items):
    first, count = config.getoption("--shard")
    left_out = [item for at, item in enumerate(items) if at % count != first]
    items[:] = items[first::count]
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def pytest_sessionfinish(session):
    """A run in which every test was skipped shows nothing."""
    config = session.config
    passed = config.pluginmanager.get_plugin("terminalreporter").stats.get("passed", [])
    if config.getoption("--require-gpu") and not config.getoption("--collect-only") and not passed:
        print("\n--require-gpu: expected at least one test to pass, got none")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def pipeline():
    return penstock.Pipeline("cpu", depth=3)


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed here")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, torch):
    """torch's name of the CPU, and of a GPU where there is one."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU for torch")
    return request.param


@pytest.fixture(scope="session")
def small(request):
    """hf_support, with the implementations "penstock" and "zeros"."""
    if not request.config.getoption("--require-gpu"):
        pytest.importorskip("transformers", reason="transformers is not installed here")
    import hf_support
    from transformers.integrations.moe import ExpertsInterface

    penstock.hf.register()
    ExpertsInterface.register("zeros", hf_support.zeros)
    return hf_support


@pytest.fixture
def python():
    """Runs a program in a fresh interpreter and returns what it did.

    One that takes too long fails, and takes along what it started.
    """

    def run(source, timeout=60, code=0):
        with subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(source)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as child:
            try:
                out, err = child.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                out, err = child.communicate()
                pytest.fail(f"not done after {timeout} s; it said {out!r} and {err!r}")
        assert child.returncode == code, (child.returncode, out, err)
        return subprocess.CompletedProcess(child.args, code, out, err)

    return run


@pytest.fixture
def interrupted():
    """Runs a program, interrupts it when it says "ready", and returns what it says after that."""

    def run(source, timeout=60):
        child = subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", source],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with child:
            try:
                assert child.stdout.readline() == "ready\n"
                child.send_signal(signal.SIGINT)
                said, _ = child.communicate(timeout=timeout)
            finally:
                child.kill()
        assert child.returncode == 0, said
        return said

    return run


@pytest.fixture
def make(tmp_path):
    """Writes a dataset of robot data; returns it and what is in its episodes."""
    from robot_support import FEATURES, an_episode, write_dataset

    def make(layout="v2.1", lengths=(20, 7, 33, 12, 5), features=FEATURES, change=None, jitter=0.5,
             **more):
        episodes = [an_episode(length, number, jitter) for number, length in enumerate(lengths)]
        for episode in episodes if change else ():
            change(episode)
        folder = tmp_path / f"data{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        write_dataset(folder, layout, episodes, features, **more)
        return penstock.robot.Dataset(folder), episodes

    return make


def penstocks_threads():
    """The package's own, and those of the library that Python has seen; torch begins some, too."""
    return {thread for thread in threading.enumerate()
            if thread.name.startswith(("penstock", "Dummy"))}


@pytest.fixture
def no_thread_stays():
    before = penstocks_threads()
    yield
    gc.collect()
    end = time.monotonic() + 10
    while penstocks_threads() - before and time.monotonic() < end:
        time.sleep(0.01)
    assert penstocks_threads() <= before
