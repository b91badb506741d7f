"""Operators beside their peers and their limit: checked, then timed or profiled.

``python -m penstock.bench OP`` (or ``penstock bench OP``) runs one. A new operator is a file in
``operators/`` that describes its cases; see :class:`Case`.
"""

from ._operator import Absent, Case, Context, Operator, Peer, Yardstick

__all__ = ["Absent", "Case", "Context", "Operator", "Peer", "Yardstick"]
