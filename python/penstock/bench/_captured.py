"""A call captured into CUDA graphs, so that a replay needs almost no host time."""

import weakref
from typing import Any

from ._operator import Call


class Captured:
    """One graph per set of buffers, since a graph holds their addresses; it is freed with its output."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._graphs: dict[int, Any] = {}
        self._stream: Any = None

    def __call__(self, inputs: Any, output: Any) -> None:
        graph = self._graphs.get(id(output))
        if graph is None:
            self.prepare(inputs, output)
            graph = self._graphs[id(output)]
        graph.replay()

    def prepare(self, inputs: Any, output: Any) -> None:
        if id(output) in self._graphs:
            return
        import torch

        first = self._stream is None
        if first:
            self._stream = torch.cuda.Stream()
        # Not torch.cuda.graph(), which collects garbage and empties the cache every time.
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            if first:
                self._call(inputs, output)  # compiles and tunes, which cannot be captured
            self._stream.synchronize()
            graph.capture_begin()  # with its own memory pool, which is freed with the graph
            try:
                self._call(inputs, output)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._graphs[id(output)] = graph
        weakref.finalize(output, self._graphs.pop, id(output), None).atexit = False
