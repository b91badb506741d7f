import signal
import subprocess
import sys
import textwrap

import pytest

import penstock

# A shell ignores Ctrl-C for what it runs in the background, and every child inherits that; the
# programs that the tests start are to see it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def pipeline():
    return penstock.Pipeline("cpu", depth=3)


@pytest.fixture
def python():
    """Runs a program in a fresh interpreter and returns what it did."""

    def run(source, timeout=60, code=0):
        done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(source)],
                              capture_output=True, text=True, timeout=timeout)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    return run
