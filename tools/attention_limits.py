#!/usr/bin/env python3
"""Prints the table of docs/notes/attention.md: what limits attention at the benchmark's listed shapes.

All of it is computed from the rates that the options name, and from the tiles of the sm90 kernels.
"""

import argparse
from dataclasses import dataclass

from results_attention import DIMS, LENGTHS, MASKS, name_of
from results_tables import table

TOKENS, HIDDEN = 16384, 2048
MULTIPROCESSORS, EXPONENTIALS = 132, 16  # per cycle and multiprocessor
CONSUMER_ROWS = 64


@dataclass(frozen=True)
class Rates:
    tflops: float = 774  # of a product of 8192 x 8192 x 8192, by cuBLAS
    copy: float = 4.22  # TB/s, read and written
    clock: float = 1.6  # GHz, during such a product


@dataclass(frozen=True)
class Tile:
    """Queries by keys, as the sm90 kernels choose them. `halved`: in causal tiles the upper half of the
    queries needs only half of the last block of keys."""

    rows: int
    keys: int
    halved: bool = False

    def computed(self, length, causal):
        """Scores that are computed for one head of one sequence."""
        ends = [min(first + self.rows, length) if causal else length
                for first in range(0, length, self.rows)]
        blocks = sum(-(-end // self.keys) for end in ends)
        halves = len(ends) * CONSUMER_ROWS * self.keys // 2 if causal and self.halved else 0
        return blocks * self.rows * self.keys - halves


def tile_of(dim, length, causal):
    if dim == 64:
        tall, low = (-(-length // rows) * rows for rows in (192, 128))
        return Tile(192, 128) if 20 * tall <= 21 * low else Tile(128, 128, True)
    if dim != 256:
        return Tile(128, 128, True)
    small, large = Tile(128, 64), Tile(128, 80)
    spares = 12 * small.computed(length, causal) <= 11 * large.computed(length, causal)
    return small if spares and length <= 1024 else large


@dataclass(frozen=True)
class Limit:
    tile: Tile
    tflop: float
    computed: float  # scores, relative to those that count
    products_us: float
    exponentials_us: float
    memory_us: float

    @property
    def us(self):
        return max(self.products_us, self.exponentials_us, self.memory_us)


def limit(dim, length, causal, rates):
    heads, tile = HIDDEN // dim, tile_of(dim, length, causal)
    counted = length * length // (2 if causal else 1)
    computed = tile.computed(length, causal) / counted
    scores = TOKENS // length * heads * counted
    tflop = 4 * scores * dim * 1e-12
    per_us = MULTIPROCESSORS * EXPONENTIALS * rates.clock * 1e3
    return Limit(tile, tflop, computed, tflop / rates.tflops * 1e6 * computed,
                 scores * computed / per_us, 4 * TOKENS * HIDDEN * 2 / rates.copy * 1e-6)


def rows(rates):
    for dim in DIMS:
        for mask in MASKS:
            for length in LENGTHS:
                of = limit(dim, length, mask == "causal", rates)
                yield [name_of(dim, length, mask), f"{of.tflop:.3f}", f"{of.tile.rows} x {of.tile.keys}",
                       f"{of.computed:.3f}", f"{of.products_us:.0f}", f"{of.exponentials_us:.0f}",
                       f"{of.memory_us:.0f}", f"{of.tflop / of.us * 1e6:.0f}"]


def limits(rates):
    return table(["case", "TFLOP", "tile", "computed", "products, µs", "exponentials, µs", "memory, µs",
                  "limit, TFLOP/s"], rows(rates))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = Rates()
    for name, unit in (("tflops", "TFLOP/s of matrix products"), ("copy", "TB/s of copies"),
                       ("clock", "GHz of the multiprocessors")):
        parser.add_argument(f"--{name}", type=float, default=getattr(usual, name), metavar="RATE",
                            help=f"{unit} (default: %(default)s)")
    print(limits(Rates(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
