import os
import stat

import numpy
import pytest

import penstock
from penstock.bench import Absent, Case, Context, Operator, Peer
from penstock.bench import operators as registry
from penstock.bench._cli import main

pytest_plugins = ["gpu_run"]


class Doubling(Case):
    """Twice x; a subject that tests break in every way."""

    tolerance = 1e-6

    def __init__(self, context, name="double", elements=1000, kernels=None, peers=None):
        self.name, self.params = name, {"elements": elements}
        self.bytes, self.flop = 8 * elements, elements
        self._context, self._elements = context, elements
        self._kernels = kernels or {"default": double}
        self._peers = peers or {}

    def make_inputs(self, rotation):
        return self._context.random(rotation).random(self._elements, dtype="f4")

    def make_outputs(self, inputs):
        return numpy.empty_like(inputs)

    def reference(self, inputs):
        return 2 * inputs.astype("f8")

    def kernels(self):
        return self._kernels

    def peers(self):
        return self._peers

    def roof_us(self, ceilings):
        return self.bytes / ceilings["host_copy"] * 1e6


def double(x, out):
    numpy.multiply(x, 2, out=out)


class Doubler(Operator):
    name, summary = "double", "twice x"

    def __init__(self, make_cases):
        self._make_cases = make_cases

    def cases(self, context):
        return self._make_cases(context)


@pytest.fixture
def context():
    return Context(penstock.Device("cpu"), seed=7, quick=True)


@pytest.fixture
def operator(monkeypatch):
    """Puts an operator of these cases in place of all others."""

    def install(make_cases=lambda context: [Doubling(context, peers={
            "numpy": Peer(numpy.__version__, double), "elsewhere": Absent("not installed")})]):
        monkeypatch.setattr(registry, "names", lambda: ["double"])
        found = Doubler(make_cases)

        def find(name):
            if name != "double":
                raise penstock.InvalidArgument("OP", "one of double", repr(name))
            return found

        monkeypatch.setattr(registry, "find", find)
        return found

    return install


@pytest.fixture(scope="session")
def ceilings(tmp_path_factory):
    """Where the machine's are kept, measured once for all tests; quick ones would not be kept."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_CACHE", str(folder))
        penstock.limits("cpu", disk=False)
    return folder


@pytest.fixture
def bench(capfd, monkeypatch, tmp_path, ceilings):
    """Runs the command line in this process; gives its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_CACHE", str(ceilings))

    def run(*words):
        try:
            code = main([str(word) for word in words])
        except SystemExit as left:
            code = left.code
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return run


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a shell script on PATH, in front of everything else."""

    def put(name, script):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return path

    return put
