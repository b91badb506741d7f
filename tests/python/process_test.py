"""Signals, exits and forks: what a process does around a pipeline; and other copies of its functions."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import penstock

HEAD = """
import os, sys, threading, time
import penstock
"""


def interrupted(source, wait_for="ready"):
    """Starts a program, sends Ctrl-C once it said that it is ready; (seconds until its end, output)."""
    child = subprocess.Popen([sys.executable, "-X", "faulthandler", "-c",
                              HEAD + textwrap.dedent(source)],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with child:
        try:
            said = child.stdout.readline()
            assert said.strip() == wait_for, said
            time.sleep(0.1)
            child.send_signal(signal.SIGINT)
            begin = time.monotonic()
            rest, _ = child.communicate(timeout=60)
            return time.monotonic() - begin, rest, child.returncode
        finally:
            child.kill()  # what did not end is not left behind


@pytest.mark.parametrize("stage", ["stage", "host_stage"])
def test_ctrl_c_ends_a_run_soon_and_it_runs_again(stage):
    seconds, said, code = interrupted(f"""
        pipeline = penstock.Pipeline("cpu", depth=2)
        ring = pipeline.ring("ring", bytes=1 << 16)
        def work(item):
            if item.index == 0: print("ready", flush=True)
            time.sleep(0.002)
        first = pipeline.{stage}("first", work, uses=ring)
        pipeline.{stage}("second", lambda item: time.sleep(0.002), after=first, uses=ring)
        try:
            pipeline.run(10 ** 9)
        except KeyboardInterrupt:
            print("interrupted", pipeline.run(5).items)
    """)
    assert said.split() == ["interrupted", "ready", "5"] or "interrupted 5" in said, said
    assert code == 0 and seconds < 20


def test_ctrl_c_where_nobody_catches_it():
    seconds, said, code = interrupted("""
        pipeline = penstock.Pipeline("cpu")
        def work(item):
            if item.index == 0: print("ready", flush=True)
            time.sleep(0.01)
        pipeline.host_stage("work", work)
        pipeline.run(10 ** 9)
    """)
    assert code == -signal.SIGINT and seconds < 20
    assert "KeyboardInterrupt" in said and "leaked" not in said


@pytest.mark.parametrize("call", [
    "penstock.overlap('cpu', items=64, item_bytes=16 << 20, repeats=100, progress=ready)",
    "penstock.limits('cpu', fresh=True, disk=False, progress=ready)",
])
def test_ctrl_c_ends_a_measurement(call):
    seconds, said, code = interrupted(f"""
        def ready(what, share, reports=[]):
            if not reports: print("ready", flush=True)
            reports.append(what)
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert said == "interrupted\n" and code == 0 and seconds < 20


@pytest.mark.parametrize("work", [
    "time.sleep(0.001)",
    "time.sleep(1000)",
    "sum(range(1000))",
    "item.slot(ring).numpy().fill(1)",
])
def test_the_interpreter_exits_in_the_middle_of_a_daemons_run(python, work):
    done = python(HEAD + f"""
began = threading.Event()
pipeline = penstock.Pipeline("cpu", depth=2)
ring = pipeline.ring("ring", bytes=4096)
def work(item):
    began.set()
    {work}
first = pipeline.host_stage("first", work, uses=ring)
pipeline.host_stage("second", lambda item: item.slot(ring).numpy(), after=first, uses=ring)
threading.Thread(target=lambda: pipeline.run(10 ** 9), daemon=True).start()
began.wait()
time.sleep(0.05)
""", timeout=30)
    assert done.stderr == ""


def test_exit_in_the_middle_of_many_runs_that_come_and_go(python):
    for seed in range(5):
        done = python(HEAD + f"""
import random
begun = threading.Barrier(4)
def run():
    pipeline = penstock.Pipeline("cpu", depth=2)
    ring = pipeline.ring("ring", bytes=4096)
    first = pipeline.host_stage("first", lambda item: item.slot(ring), uses=ring)
    pipeline.host_stage("second", lambda item: time.sleep(0), after=first, uses=ring)
    begun.wait()
    pipeline.run(10 ** 9, progress=lambda *_: None)
for _ in range(3):
    threading.Thread(target=run, daemon=True).start()
begun.wait()
time.sleep(random.Random({seed}).random() * 0.1)
""", timeout=30)
        assert done.stderr == "", seed


def test_an_exit_handler_may_wait_for_a_daemon(python):
    """Handlers from before the import run after the package's own, which must end the run."""
    done = python("""
        import atexit, threading
        threads = []
        atexit.register(lambda: (threads[0].join(10), print(threads[0].is_alive())))
        import penstock
        pipeline = penstock.Pipeline("cpu")
        began = threading.Event()
        pipeline.host_stage("work", lambda item: began.set())
        threads.append(threading.Thread(target=lambda: pipeline.run(10 ** 9), daemon=True))
        threads[0].start()
        began.wait()
    """, timeout=30)
    assert done.stdout == "False\n" and done.stderr == ""


def test_exit_in_the_middle_of_a_daemons_measurement(python):
    done = python(HEAD + """
began = threading.Event()
threading.Thread(target=lambda: penstock.limits("cpu", fresh=True, disk=False,
                                                progress=lambda *a: began.set()),
                 daemon=True).start()
began.wait()
""", timeout=30)
    assert done.stderr == ""


def test_exit_with_everything_still_held_leaks_nothing(python):
    done = python(HEAD + """
pipeline = penstock.Pipeline("cpu")
ring = pipeline.ring("ring", shape=4, dtype="f32")
kept = []
def work(item):
    kept.append((item, item.slot(ring), item.slot(ring).numpy(), item.slot(ring).__dlpack__()))
pipeline.host_stage("work", work, uses=ring)
timeline = penstock.Timeline()
pipeline.run(10, recorder=timeline)
try:
    pipeline.run(2, progress=lambda *a: 1 / 0)
except ZeroDivisionError as error:
    kept.append(error)
found = penstock.overlap("cpu", items=1, item_bytes=1 << 20, repeats=1)
file = penstock.File(sys.executable)
""")
    assert done.stderr == ""


USES = {
    "run": "pipeline.run(1)",
    "device": "penstock.Device.best()",
    "new pipeline": "penstock.Pipeline()",
    "stream": "stream.synchronize()",
    "read": "file.read(bytearray(4))",
    "read_file": "penstock.read_file(sys.executable, count=4)",
    "overlap": "penstock.overlap('cpu')",
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
@pytest.mark.parametrize("started", ["pipeline.run(3)", "penstock.Device.all()"])
def test_a_forked_child_is_told(python, use, started):
    python(HEAD + f"""
pipeline = penstock.Pipeline("cpu")
pipeline.host_stage("work", lambda item: None)
stream = penstock.Stream("cpu")
file = penstock.File(sys.executable)
{started}
child = os.fork()
if child == 0:
    try:
        {use}
    except RuntimeError as error:
        os._exit(0 if "do not survive a fork" in str(error) and "spawn" in str(error) else 2)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
assert pipeline.run(3).items == 3
file.read(bytearray(4))
""", timeout=30)


def test_a_forked_child_may_end_in_the_ordinary_way(python):
    """Its copies of the pipeline, of files and of streams are dropped without their threads."""
    python(HEAD + """
pipeline = penstock.Pipeline("cpu")
ring = pipeline.ring("ring", bytes=16)
pipeline.stage("work", lambda item: None, uses=ring)
file = penstock.File(sys.executable)
stream = penstock.Stream("cpu")
pipeline.run(3)
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
for _ in range(100):
    file.read(bytearray(4))
""", timeout=30)


def test_a_fork_in_the_middle_of_a_run(python):
    """The child ends at once, whatever the threads that it does not have were about."""
    python(HEAD + """
pipeline = penstock.Pipeline("cpu", depth=2)
ring = pipeline.ring("ring", bytes=64)
first = pipeline.host_stage("first", lambda item: item.slot(ring), uses=ring)
pipeline.host_stage("second", lambda item: item.slot(ring), after=first, uses=ring)
pipeline.run(1)
thread = threading.Thread(target=lambda: pipeline.run(20_000))
thread.start()
for _ in range(20):
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert time.monotonic() - begin < 1.5
thread.join()
""", timeout=60)


def test_a_process_that_only_imported_may_fork(python):
    python(HEAD + """
child = os.fork()
if child == 0:
    pipeline = penstock.Pipeline("cpu")
    pipeline.host_stage("work", lambda item: None)
    os._exit(0 if pipeline.run(3).items == 3 else 1)
assert os.waitpid(child, 0)[1] == 0
""", timeout=30)


def test_spawned_workers_use_it(tmp_path):
    program = tmp_path / "main.py"
    program.write_text(textwrap.dedent("""
        import multiprocessing, penstock

        def work(items):
            pipeline = penstock.Pipeline("cpu")
            pipeline.host_stage("work", lambda item: None)
            return pipeline.run(items).items

        if __name__ == "__main__":
            penstock.Device.all()
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                assert pool.map(work, [3, 5]) == [3, 5]
    """))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_program_cannot_replace_functions_of_the_library():
    """A program may have the same inline functions with another copy of the C++ library."""
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("readelf is not installed")
    library = Path(penstock.__file__).with_name("libpenstock.so")
    listed = subprocess.run([readelf, "--relocs", "--wide", library], capture_output=True, text=True, check=True)
    # Offset, info, type, value, name; the value of a function from elsewhere is 0.
    calls = [line.split() for line in listed.stdout.splitlines() if "_JUMP_SLO" in line]
    assert calls and not [call[4] for call in calls if int(call[3], 16) != 0]
