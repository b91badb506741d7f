"""Captured calls, copies and compiled peers, over a torch that only notes what it is asked."""

import gc
import sys
import types
from contextlib import contextmanager

import numpy
import pytest

from penstock.bench._captured import Captured
from penstock.bench._compiled import Compiled
from penstock.bench._device_copy import device_copy


class Tensor:
    def __init__(self, nbytes=8):
        self.nbytes = nbytes


@pytest.fixture
def torch(monkeypatch):
    noted = []

    class Stream:
        def wait_stream(self, other):
            noted.append("wait")

        def synchronize(self):
            noted.append("synchronize")

    class Graph:
        def capture_begin(self):
            noted.append("begin")

        def capture_end(self):
            noted.append("end")

        def replay(self):
            noted.append("replay")

    @contextmanager
    def on(stream):
        yield

    class Buffer:
        def __init__(self, size, byte):
            self.data = numpy.full(size, byte, "u1")

        def copy_(self, other):
            self.data[:] = other.data
            noted.append(self)

    module = types.ModuleType("torch")
    module.noted, module.uint8 = noted, "u8"
    module.version = types.SimpleNamespace(cuda="13.0")
    module.cuda = types.SimpleNamespace(Stream=Stream, CUDAGraph=Graph, stream=on,
                                        current_stream=Stream)
    module.full = lambda shape, byte, dtype, device: Buffer(shape, byte)
    module.compiler = types.SimpleNamespace(reset=lambda: noted.append("reset"))
    module.compile = lambda call, dynamic, fullgraph: noted.append((dynamic, fullgraph)) or call
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_every_set_has_a_graph_of_its_own(torch):
    calls = []
    captured = Captured(lambda inputs, out: calls.append(out))
    sets = [Tensor(), Tensor()]
    for out in sets:
        captured.prepare("inputs", out)
    assert calls == [sets[0], sets[0], sets[1]]  # the first of all is to compile
    assert torch.noted == ["wait", "synchronize", "begin", "end", "wait"] * 2
    torch.noted.clear()
    for out in (*sets, sets[0]):
        captured("inputs", out)
    assert torch.noted == ["replay"] * 3 and len(calls) == 3
    captured.prepare("inputs", sets[0])
    assert len(calls) == 3


def test_a_graph_goes_with_its_output(torch):
    captured = Captured(lambda inputs, out: None)
    out = Tensor()
    captured("inputs", out)
    assert torch.noted[-1] == "replay" and len(captured._graphs) == 1
    del out
    gc.collect()
    assert len(captured._graphs) == 0


def test_a_failed_capture_is_ended(torch):
    calls = []

    def fails(inputs, out):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("not here")

    with pytest.raises(RuntimeError, match="not here"):
        Captured(fails)("inputs", Tensor())
    assert torch.noted[-1] == "end"


def test_a_copy_reads_half_and_writes_half_past_the_cache(torch):
    copy, = device_copy(moved=2 * 4096, device="cuda:0", cache=16384).values()
    assert copy.version == "CUDA 13.0"
    for _ in range(14):
        copy.call("inputs", "outputs")
    targets = torch.noted
    assert all(target.data.size == 4096 and (target.data == 1).all() for target in targets)
    assert len({id(target) for target in targets}) == 7  # 56 KiB, more than 3 * 16 KiB
    assert targets[:7] == targets[7:]


def test_a_copy_of_pages_moves_no_less(torch):
    for moved, page in ((1000, 4096), (2 * 4096, 4096), (2 * 4097, 2 * 4096)):
        copy, = device_copy(moved=moved, device="cuda:0", cache=2000).values()
        copy.call("inputs", "outputs")
        assert torch.noted[-1].data.size == page


def test_what_is_compiled_is_compiled_whole_and_once(torch):
    calls = []
    compiled = Compiled(lambda inputs, out: calls.append(out))
    compiled("inputs", 1)
    compiled("inputs", 2)
    assert torch.noted == ["reset", (False, True)] and calls == [1, 2]
