"""Which experts the tokens choose, and how evenly: computed on the host from the router's logits."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .shapes import TILE_ROWS

# The relative distance of the last chosen logit to the first that is not chosen. Below it, the choice
# may depend on how an implementation rounds or orders equal logits: two steps of bf16.
CLEAR = 2.0**-6


def log_popularity(random: Any, experts: int, zipf: float) -> Any:
    """The logarithm of each expert's popularity, relative to the mean, in random order."""
    import numpy

    share = numpy.arange(1, experts + 1.0) ** -zipf
    return random.permutation(numpy.log(share / share.mean()))


@dataclass(frozen=True)
class Load:
    """The routing of one batch. `ids` (T, K) are the chosen experts, the best first."""

    logits: Any  # (T, E)
    ids: Any

    @classmethod
    def of(cls, logits: Any, choices: int) -> "Load":
        import numpy

        order = numpy.argsort(-logits, axis=1, kind="stable")
        return cls(logits, order[:, :choices])

    @cached_property
    def counts(self) -> Any:
        """The tokens of every expert."""
        import numpy

        return numpy.bincount(self.ids.reshape(-1), minlength=self.logits.shape[1])

    @property
    def touched(self) -> int:
        """Experts with at least one token."""
        import numpy

        return int(numpy.count_nonzero(self.counts))

    @property
    def padded_rows(self) -> int:
        return int((-(-self.counts // TILE_ROWS) * TILE_ROWS).sum())

    def weights(self, tokens: Any) -> Any:
        """The weights of these tokens' experts, in f64: a softmax over the chosen logits."""
        import numpy

        chosen = numpy.take_along_axis(self.logits[tokens], self.ids[tokens], 1).astype("f8")
        share = numpy.exp(chosen - chosen.max(axis=1, keepdims=True))
        return share / share.sum(axis=1, keepdims=True)

    def clear_tokens(self, most: int) -> Any:
        """Up to `most` tokens whose choice does not depend on rounding, spread over the batch."""
        import numpy

        choices = self.ids.shape[1]
        if choices == self.logits.shape[1]:
            clear = numpy.arange(len(self.ids))
        else:
            best = -numpy.partition(-self.logits, choices, axis=1)
            last, next_one = best[:, :choices].min(axis=1), best[:, choices]
            clear = numpy.flatnonzero(last - next_one > CLEAR * numpy.maximum(abs(last), 1))
        places = numpy.linspace(0, len(clear) - 1, min(most, len(clear)))
        return clear[numpy.round(places).astype(int)]
