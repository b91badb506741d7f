"""A dataset for torch's DataLoader."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch.utils.data import IterableDataset

if TYPE_CHECKING:
    from ._loader import Batch, Loader


class Iterable(IterableDataset):
    def __init__(self, loader: "Loader") -> None:
        super().__init__()
        self.loader = loader

    def __iter__(self) -> "Iterator[Batch]":
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)
