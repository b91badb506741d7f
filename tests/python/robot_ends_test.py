"""How passes of the loader end: early, by a failure, and with their process."""

import textwrap
import threading

import pytest

from robot_support import loader

pytestmark = pytest.mark.usefixtures("no_thread_stays")


class TestEnds:
    def test_closed_early(self, make):
        dataset, _ = make(lengths=[5] * 40)
        one = loader(dataset, batch=1)
        for taken in (0, 1, 3):
            batches = iter(one)
            for _ in range(taken):
                next(batches)
            batches.close()
            batches.close()
            assert not [t for t in threading.enumerate() if "penstock.robot" in t.name]
            with pytest.raises(StopIteration):
                next(batches)
        assert len(list(one)) == 40

    def test_dropped_early(self, make):
        dataset, _ = make(lengths=[5] * 40)
        for _ in loader(dataset, batch=1):
            break  # the fixture sees the threads end

    def test_the_caller_fails(self, make):
        dataset, _ = make(lengths=[5] * 40)
        with pytest.raises(ZeroDivisionError), iter(loader(dataset, batch=1)) as batches:
            for _ in batches:
                1 / 0

    def test_a_failure_in_decode_arrives_as_it_is(self, make, monkeypatch):
        dataset, _ = make(lengths=[5] * 10)
        plain = dataset.read_rows

        class Thrown(Exception):
            pass

        def read(episodes, *args):
            if 6 in [episode.index for episode in episodes]:
                raise Thrown("here")
            return plain(episodes, *args)

        monkeypatch.setattr(dataset, "read_rows", read)
        one = loader(dataset, batch=2)
        seen = []
        with pytest.raises(Thrown, match="here"):
            for batch in one:
                seen += batch.episodes.tolist()
        assert seen == list(range(len(seen))) and len(seen) <= 6
        assert not [t for t in threading.enumerate() if "penstock.robot" in t.name]
        monkeypatch.undo()
        assert len(list(one)) == 5

    def test_a_million_passes_or_so(self, make):
        dataset, _ = make(lengths=[3])
        one = loader(dataset)
        for _ in range(50):
            assert len(list(one)) == 1
        assert len(one._idle) == 1


PROGRAM = """
import os, signal, sys, threading, time
from penstock import robot
loader = robot.Loader({path!r}, "action", at=50, steps=10, batch=1, threads=1, device="cpu",
                      like="numpy")
"""


class TestProcesses:
    def test_importing_it_leaves_others_alone(self, python):
        python("""
            import sys
            import penstock.robot
            assert not {"pyarrow", "torch"} & set(sys.modules)
        """)

    def test_without_pyarrow(self, make, python):
        dataset, _ = make()
        done = python(f"""
            import sys
            sys.modules["pyarrow"] = None
            from penstock import robot
            try:
                robot.Dataset({str(dataset.path)!r})
            except NotImplementedError as error:
                print(error)
        """)
        assert done.stdout == "reading Parquet files needs pyarrow: pip install pyarrow\n"

    def test_exit_in_the_middle_of_a_pass(self, make, python):
        dataset, _ = make(lengths=[5] * 50)
        for wait in (0, 0.05):
            done = python(PROGRAM.format(path=str(dataset.path)) + textwrap.dedent(f"""
                batches = iter(loader)
                next(batches)
                time.sleep({wait})
            """), timeout=30)
            assert done.stderr == ""

    def test_a_forked_child_is_told(self, make, python):
        dataset, _ = make()
        python(PROGRAM.format(path=str(dataset.path)) + textwrap.dedent("""
            next(iter(loader))
            child = os.fork()
            if child == 0:
                try:
                    next(iter(loader))
                except NotImplementedError as error:
                    os._exit(0 if "num_workers=0" in str(error) else 2)
                os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            assert len(list(loader)) == 5
        """), timeout=30)

    def test_ctrl_c(self, make, interrupted):
        dataset, _ = make()
        program = PROGRAM.format(path=str(dataset.path)) + textwrap.dedent("""
            begun, interrupted = threading.Event(), threading.Event()
            def interrupt(*args):
                interrupted.set()
                raise KeyboardInterrupt
            def read(*args):
                begun.wait()
                time.sleep(0.5)  # until the caller waits
                print("ready", flush=True)
                interrupted.wait(60)
                raise RuntimeError("too late")
            signal.signal(signal.SIGINT, interrupt)
            loader.dataset.read_rows = read
            batches = iter(loader)
            try:
                begun.set()
                next(batches)
            except KeyboardInterrupt:
                print("interrupted", threading.active_count())
        """)
        assert interrupted(program).splitlines()[-1] == "interrupted 1"
