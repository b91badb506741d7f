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

pytest_plugins = ["gpu_run"]


@pytest.fixture
def pipeline():
    return penstock.Pipeline("cpu", depth=3)


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
