"""Batches of episodes on one clock."""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Self

import numpy
from numpy.typing import ArrayLike, NDArray

from .. import _core
from .._errors import InvalidArgument, Unsupported
from . import _engine, _signals
from ._clock import Clock
from ._dataset import Dataset
from ._iteration import HandOver
from ._metadata import Indices
from ._results import Results


class Batch(dict[str, Any]):
    """Columns by name, each (B, T, D); with ``fused=True`` all of them as 'rows'.

    `valid` (B, T) says where the time lies within the episode; where columns have different times it
    is such a mask by column, or (B, T, columns of times) for rows. `episodes` (B) are the episodes'
    numbers and `times` (T) the seconds since they began.
    """

    valid: Any = None
    episodes: Indices
    times: NDArray[numpy.float64]


class Batches:
    """One pass of a loader: an iterator that can be closed early.

    >>> dataset = robot.Dataset(path)
    >>> with iter(robot.Loader(dataset, "action", at=30, steps=10, batch=2)) as batches:
    ...     first = next(batches)  # the others are on their way, and are dropped
    >>> first.episodes
    array([0, 1])
    """

    def __init__(self, loader: "Loader", batches: list[Indices],
                 recorder: _core.Timeline | None) -> None:
        self._loader, self._over = loader, HandOver()
        # The thread knows the hand-over and not this object, which may be dropped at any time.
        lend, keep = loader._lend, loader._keep

        def work(give: Any) -> None:
            engine = lend()
            try:
                engine.run(batches, give, recorder)
            finally:
                keep(engine)

        self._over.start(work)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        try:
            work = self._over.take()
        except BaseException:
            self.close()
            raise
        if work is None:
            self.close()
            raise StopIteration
        batch = Batch(work.arrays)
        batch.valid, batch.episodes, batch.times = work.valid, work.episodes, work.clock
        masks = work.valid.values() if isinstance(work.valid, dict) else [work.valid]
        self._loader._settings.results.taken([*work.arrays.values(), *masks])
        return batch

    def close(self) -> None:
        """Ends the pass: what is on its way is dropped, and the threads end."""
        self._over.close()
        self._over.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # of one that was never made whole
            self._over.close()  # waits for nothing: this may be any thread


class Loader:
    """Iterates over episodes in batches: columns brought to one clock, on the device.

    `columns` are names, names with modes (``{"action": "previous"}``) or :class:`Signal`. `at` is a
    rate in Hz, for so many `seconds` or `steps`, or as long as the longest episode of the batch; or
    times in seconds since an episode's beginning. Outside an episode its first or last sample is held
    and `valid` is false; `outside` and `fill` are those of :func:`penstock.resample`.

    Columns keep their types; `dtype` is for those of floating-point numbers, and f16 and bf16 are
    computed in f32 and rounded once. With `fused` there is one array, of all columns side by side in
    the order given, :attr:`slices`. Arrays are torch's where it is installed, else NumPy's on the CPU
    and Penstock's on a GPU, or as `like` says.

    `shuffle` orders episodes anew in every pass, from `seed` and :attr:`epoch`, which counts passes
    and may be set. While the caller works on a batch, up to `prefetch` more are made, as many decoded
    and as many read; so many `threads` decode.

    >>> loader = robot.Loader(robot.Dataset(path), {"action": "linear"}, at=30, batch=3, seconds=1,
    ...                       shuffle=True, seed=7, drop_last=True, device="cpu")
    >>> [tuple(batch["action"].shape) for batch in loader]
    [(3, 30, 2), (3, 30, 2)]
    """

    def __init__(self, dataset: Dataset | str | os.PathLike[str], columns: _signals.Wanted, *,
                 at: float | ArrayLike, batch: int, seconds: float | None = None,
                 steps: int | None = None, episodes: Iterable[int] | None = None,
                 dtype: Any = None, fused: bool = False, outside: str = "clamp",
                 fill: float = float("nan"), shuffle: bool = False, seed: int = 0,
                 drop_last: bool = False, prefetch: int = 2, threads: int | None = None,
                 device: str | _core.Device | None = None, like: str | None = None) -> None:
        if not isinstance(dataset, Dataset):
            dataset = Dataset(dataset)
        for name, value in (("batch", batch), ("prefetch", prefetch), ("threads", threads or 1)):
            if value < 1:
                raise InvalidArgument(name, "1 or more", str(value))
        if outside not in ("clamp", "fill", "extrapolate"):
            raise InvalidArgument("outside", "'clamp', 'fill' or 'extrapolate'", repr(outside))
        blocks = _signals.resolve(dataset, columns, dtype, fused)
        clock = Clock(at, seconds, steps, dataset.features[blocks[0].times])
        self._episodes, rows = _chosen(dataset, episodes, batch)
        place = _core.Device(device)
        self._settings = _engine.Settings(
            dataset, blocks, clock, batch, rows, fused, outside, fill, prefetch,
            threads or min(4, os.cpu_count() or 1), place,
            Results(like, place, {block.given for block in blocks}))
        self._shuffle, self._seed, self._drop_last = shuffle, seed, drop_last
        self.epoch = 0
        self._process = os.getpid()
        self._idle: list[_engine.Engine] = []

    @property
    def dataset(self) -> Dataset:
        return self._settings.dataset

    @property
    def device(self) -> _core.Device:
        return self._settings.device

    @property
    def slices(self) -> dict[str, slice]:
        """Where each column stands in fused rows; those with the same times stand together."""
        found: dict[str, slice] = {}
        begin = 0
        for block in self._settings.blocks:
            for name, at in block.slices.items():
                found[name] = slice(begin + at.start, begin + at.stop)
            begin += block.width
        return found

    def __len__(self) -> int:
        whole, rest = divmod(len(self._episodes), self._settings.batch)
        return whole + (rest > 0 and not self._drop_last)

    def __iter__(self) -> Batches:
        return self.batches()

    def batches(self, *, recorder: _core.Timeline | None = None) -> Batches:
        """One pass; `recorder` receives what ran when."""
        self._refuse_worker()
        order = self._episodes
        if self._shuffle:
            order = numpy.random.default_rng([self._seed, self.epoch]).permutation(order)
        self.epoch += 1
        batches = list(_engine.in_batches(order, self._settings.batch, self._drop_last))
        return Batches(self, batches, recorder)

    def torch(self) -> Any:
        """The same as a ``torch.utils.data.IterableDataset``; it makes batches itself::

            torch.utils.data.DataLoader(loader.torch(), batch_size=None)
        """
        try:
            from ._torch import Iterable
        except ImportError as missing:
            raise Unsupported("torch() needs torch: pip install torch") from missing
        return Iterable(self)

    def __repr__(self) -> str:
        names = ", ".join(self.slices)
        return f"<penstock.robot.Loader of {names} on '{self.device.name}': {len(self)} batches>"

    def __reduce__(self) -> Any:
        raise Unsupported(_APART)  # on its way to a worker that was spawned

    def _refuse_worker(self) -> None:
        torch = sys.modules.get("torch.utils.data")
        if os.getpid() != self._process or (torch and torch.get_worker_info() is not None):
            raise Unsupported(_APART)

    def _lend(self) -> _engine.Engine:
        """One that no other pass is using."""
        with suppress(IndexError):
            return self._idle.pop()
        return _engine.Engine(self._settings)

    def _keep(self, engine: _engine.Engine) -> None:
        self._idle.append(engine)


_APART = ("a robot.Loader has threads of its own, which do not survive a fork: use num_workers=0 in "
          "torch's DataLoader, and in other processes a Loader made there")


def _chosen(dataset: Dataset, episodes: Iterable[int] | None, batch: int) -> tuple[Indices, int]:
    """The episodes, and the most samples that a batch of them can have."""
    every = dataset.episodes
    chosen, lengths = every.indices, every.lengths
    if episodes is not None:
        chosen = numpy.array([int(episode) for episode in episodes], numpy.int64)
        lengths = every.lengths[[every.place(episode) for episode in chosen.tolist()]]
    if (lengths <= 0).any():
        raise InvalidArgument("episodes", "some that have samples",
                              f"{chosen[lengths <= 0][0]}, of length 0")
    return chosen, int(numpy.sort(lengths)[::-1][:batch].sum())
