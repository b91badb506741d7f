"""The layer in NumPy: one expert after the other."""

from typing import Any


class NumpyLayer:
    def __init__(self, choices: int) -> None:
        self._choices = choices

    def __call__(self, inputs: dict[str, Any], out: Any) -> None:
        import numpy

        x = inputs["x"]
        logits = x @ inputs["router"].T
        ids = numpy.argsort(-logits, axis=1, kind="stable")[:, :self._choices]
        chosen = numpy.take_along_axis(logits, ids, 1)
        weights = numpy.exp(chosen - chosen.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out[:] = 0
        for expert, (gate_up, down) in enumerate(zip(inputs["gate_up"], inputs["down"])):
            tokens, places = numpy.nonzero(ids == expert)
            gate, up = numpy.split(x[tokens] @ gate_up.T, 2, axis=1)
            hidden = gate / (1 + numpy.exp(-gate)) * up
            out[tokens] += weights[tokens, places, None] * (hidden @ down.T)
