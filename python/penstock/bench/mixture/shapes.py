"""Shapes of mixture-of-experts layers, and what one forward has to move and to compute."""

from dataclasses import dataclass

TILE_ROWS = 64  # the rows of an expert are padded to a multiple of this


@dataclass(frozen=True)
class Shape:
    """T tokens of d numbers, E experts of width n, K experts per token.

    The popularity of the experts follows Zipf's law with the exponent `zipf`; 0 means that all are
    equally popular.
    """

    tokens: int
    hidden: int
    width: int
    experts: int
    choices: int
    zipf: float = 0.0

    @property
    def rows(self) -> int:
        """Pairs of a token and one of its experts."""
        return self.tokens * self.choices

    @property
    def flop(self) -> int:
        """Three products per pair: gate, up and down. The router's projection does not count."""
        return 6 * self.rows * self.hidden * self.width

    def expert_bytes(self, element: int) -> int:
        """The weights of one expert."""
        return 3 * self.hidden * self.width * element

    def least_bytes(self, element: int) -> int:
        """Every input and result once: the experts, of which a small batch may not reach all, the
        router's matrix, the tokens and the result."""
        return self.touched_bytes(min(self.experts, self.rows), element)

    def touched_bytes(self, experts: int, element: int) -> int:
        """The same, if the tokens choose that many experts in all."""
        others = (self.experts + 2 * self.tokens) * self.hidden * element
        return experts * self.expert_bytes(element) + others

    def combine_bytes(self, element: int) -> int:
        """The results of the experts, read once and written as one row per token, and the logits."""
        results = (self.rows + self.tokens) * self.hidden
        return (results + self.tokens * self.experts) * element

    def workspace_bound(self, element: int) -> int:
        """The most memory that a call may need for itself: two rows per pair and its place in the
        sorted order, 64 spare rows of each kind, and 1 MiB."""
        row = (self.width + self.hidden) * element
        return (self.rows + TILE_ROWS) * row + 16 * self.rows + (1 << 20)
