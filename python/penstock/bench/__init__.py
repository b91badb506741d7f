"""Benchmarks of operators: checks every result, then times or profiles it next to its peers.

``python -m penstock.bench OP`` (or ``penstock bench OP``) runs one operator. To add an operator, put
a file into ``operators/`` that describes its cases; see :class:`Case`.
"""

from ._errors import BenchError
from ._operator import Absent, Case, Context, Operator, Peer, Yardstick

__all__ = ["Absent", "BenchError", "Case", "Context", "Operator", "Peer", "Yardstick"]
