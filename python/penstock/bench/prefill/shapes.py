"""Shapes of attention calls, which queries see which keys, and what a call has to move and to compute."""

from dataclasses import asdict, dataclass
from typing import Any

MOST_SEQUENCES = 16  # whose results are compared with the reference
FEWEST_ROWS = 48  # of all sequences together


@dataclass(frozen=True)
class Shape:
    """`batch` sequences of `length` queries and, unless `keys` says otherwise, as many keys.

    With `packed`, sequences of these lengths lie one after the other instead. With `keys_of`, every
    sequence has `length` queries, but its own number of keys, which lie one after the other. `heads_kv` and `dim_v` are
    those of the queries unless given. `window` is the number of keys before its own that a query sees.
    """

    batch: int
    length: int
    heads: int
    dim: int
    causal: bool = False
    heads_kv: int = 0
    keys: int = 0
    dim_v: int = 0
    window: int | None = None
    softcap: float = 0.0
    sinks: bool = False
    dtype: str = "bf16"
    packed: tuple[int, ...] = ()
    keys_of: tuple[int, ...] = ()

    @property
    def kv_heads(self) -> int:
        return self.heads_kv or self.heads

    @property
    def value_dim(self) -> int:
        return self.dim_v or self.dim

    @property
    def sequences(self) -> list[tuple[int, int]]:
        """Queries and keys of every sequence."""
        if self.packed:
            return [(length, length) for length in self.packed]
        if self.keys_of:
            return [(self.length, keys) for keys in self.keys_of]
        return [(self.length, self.keys or self.length)] * self.batch

    @property
    def rows(self) -> tuple[int, int]:
        """Queries and keys of all sequences."""
        return sum(queries for queries, _ in self.sequences), sum(keys for _, keys in self.sequences)

    def seen(self, sequence: int, query: Any) -> tuple[Any, Any]:
        """The first key that these queries of a sequence see, and the one after the last."""
        import numpy

        queries, keys = self.sequences[sequence]
        place = numpy.asarray(query) + (keys - queries)
        first = numpy.zeros_like(place) if self.window is None else numpy.maximum(place - self.window, 0)
        return first, numpy.minimum(place + 1, keys) if self.causal else numpy.full_like(place, keys)

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees. As is usual, causal attention counts half of all."""
        import numpy

        total = 0
        for sequence, (queries, keys) in enumerate(self.sequences):
            if self.window is None and queries == keys:
                total += queries * keys // (2 if self.causal else 1)
            else:
                first, end = self.seen(sequence, numpy.arange(queries))
                total += int((end - first).sum())
        return total

    @property
    def flop(self) -> int:
        """Of both matrix products, for all heads."""
        return 2 * self.heads * self.pairs * (self.dim + self.value_dim)

    def least_bytes(self, element: int) -> int:
        """Queries, keys, values and results, once each."""
        queries, keys = self.rows
        return element * (self.dim + self.value_dim) * (queries * self.heads + keys * self.kv_heads)

    def params(self) -> dict[str, Any]:
        """For a results file: what is not at its default, and all lengths."""
        always = {"batch", "length", "heads", "dim", "causal"}
        named = {"heads_kv": self.kv_heads, "dim_v": self.value_dim}
        given = {name: value for name, value in asdict(self).items()
                 if name in always or value not in (0, None, ())}
        lists = {"packed": list(self.packed), "keys_of": list(self.keys_of)}
        return given | named | {name: lengths for name, lengths in lists.items() if lengths}


@dataclass(frozen=True)
class Sample:
    """Queries whose results are compared with the reference: `queries` of one sequence each, and the row
    of its first query among those of all sequences."""

    sequence: int
    first_row: int
    queries: Any


def sample_of(shape: Shape, random: Any) -> list[Sample]:
    """The first and the last query of up to 16 sequences, among them the first and the last, and others at
    random."""
    import numpy

    sequences = shape.sequences
    begins = numpy.cumsum([0, *(queries for queries, _ in sequences)])
    chosen = numpy.linspace(0, len(sequences) - 1, min(MOST_SEQUENCES, len(sequences)))
    others = max(2, FEWEST_ROWS // len(chosen) - 2)
    samples = []
    for sequence in numpy.round(chosen).astype(int).tolist():
        queries = sequences[sequence][0]
        inner = random.integers(queries, size=others)
        samples.append(Sample(sequence, int(begins[sequence]),
                              numpy.unique([0, *inner, queries - 1])))
    return samples
