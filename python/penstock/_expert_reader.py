"""Reads the experts of a checkpoint into the stores from which they are streamed."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from . import weights
from ._compressed_experts import CompressedExpertStore
from ._dtypes import FULL_NAMES, SIZES, dtype_name
from ._experts import ExpertStore
from ._hf_names import Source
from ._memory import empty
from ._progress import ByteProgress

# Read at a time, between two steps of the progress bar; two such batches are in flight. Less if they are
# converted, since they then take memory besides that of the experts.
_BATCH, _CONVERTED_BATCH = 1 << 28, 1 << 27
# Of experts that are compressed, which are read to other memory first.
_COMPRESSED_BATCH = 1 << 27

_Batch = TypeVar("_Batch")


class ExpertReader:
    """Reads the experts that `sources` describe, as elements of `dtype`."""

    def __init__(self, checkpoint: weights.Checkpoint, sources: list[Source], dtype: str) -> None:
        self._checkpoint, self._sources = checkpoint, sources
        self._dtype, self._element_size = FULL_NAMES[dtype], SIZES[dtype]
        self._by_expert: dict[tuple[int, int], list[Source]] = {}
        for source in sources:
            self._by_expert.setdefault((source.layer, source.expert), []).append(source)

    @property
    def nbytes(self) -> int:
        """Of all experts."""
        return self._bytes_of(self._sources)

    def fill(self, store: ExpertStore | CompressedExpertStore, progress: ByteProgress) -> None:
        """Fills a store for all experts."""
        if isinstance(store, CompressedExpertStore):
            self._compress_into(store, progress)
            return

        def read(batch: list[Source]) -> None:
            self._read(batch, [store._bytes(source.layer, source.expert, source.part)
                               for source in batch])

        _overlap(read, lambda batch: progress.add(self._bytes_of(batch)), self._batches())

    def read(self, experts: list[tuple[int, int]], plain: ExpertStore) -> None:
        """Reads some experts, pairs of layer and expert, into a store with one layer."""
        batch = [(source, plain._bytes(0, number, source.part))
                 for number, expert in enumerate(experts) for source in self._by_expert[expert]]
        self._read([source for source, _ in batch], [part for _, part in batch])

    def _compress_into(self, store: CompressedExpertStore, progress: ByteProgress) -> None:
        """Compresses a few whole experts while the next ones are read."""
        experts = [(layer, expert) for layer in range(store.layers) for expert in range(store.experts)]
        block = self.nbytes // len(experts)
        most = max(1, min(_COMPRESSED_BATCH // block, len(experts)))
        rooms = [store._plain(most) for _ in range(2)]
        batches = [(experts[first:first + most], rooms[first // most % 2])
                   for first in range(0, len(experts), most)]

        def compress(batch: tuple[list[tuple[int, int]], ExpertStore]) -> None:
            for number, (layer, expert) in enumerate(batch[0]):
                store._set(layer, expert, batch[1], number)
            progress.add(block * len(batch[0]))

        _overlap(lambda batch: self.read(*batch), compress, batches)

    def _batches(self) -> Iterator[list[Source]]:
        """The sources in the order in which the files have them."""
        converts = any(source.dtype != self._dtype for source in self._sources)
        most = (_CONVERTED_BATCH if converts else _BATCH) // self._element_size
        batch: list[Source] = []
        elements = 0
        for source in sorted(self._sources, key=lambda each: each.place):
            if batch and elements + source.count > most:
                yield batch
                batch, elements = [], 0
            batch.append(source)
            elements += source.count
        if batch:
            yield batch

    def _read(self, batch: list[Source], parts: list[Any]) -> None:
        """Each source to its place in the part of its expert."""
        reads, converted = [], []
        size = self._element_size
        for source, part in zip(batch, parts, strict=True):
            place: Any = part[source.begin * size:(source.begin + source.count) * size]
            if source.dtype != self._dtype:
                room = empty(source.count * SIZES[dtype_name(source.dtype)], "u8", device="cpu")
                converted.append((place, room, source.dtype))
                place = room
            reads.append((source.tensor, place, source.first_row, source.rows))
        self._checkpoint._files.read(reads)
        if converted:
            self._convert(converted)

    def _convert(self, converted: list[tuple[Any, Any, str]]) -> None:
        import torch

        for place, room, given in converted:
            values = torch.from_dlpack(room).view(getattr(torch, given))
            torch.from_dlpack(place).view(getattr(torch, self._dtype)).copy_(values)

    def _bytes_of(self, batch: list[Source]) -> int:
        return sum(source.count for source in batch) * self._element_size


def _overlap(read: Callable[[_Batch], None], then: Callable[[_Batch], None],
             batches: Iterable[_Batch]) -> None:
    """Reads batches in two threads, and calls `then` with each in this thread, in order. A batch is read when
    `then` has returned for the one two before it."""
    earlier: tuple[_Batch, Future[None]] | None = None
    with ThreadPoolExecutor(2) as threads:
        for batch in batches:
            following = batch, threads.submit(read, batch)
            if earlier is not None:
                earlier[1].result()
                then(earlier[0])
            earlier = following
        if earlier is not None:
            earlier[1].result()
            then(earlier[0])
