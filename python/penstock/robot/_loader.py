"""Batches of episodes, resampled to common target times."""

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
    """A batch: one array (B, T, D) per column; with ``fused=True`` a single one, ``"rows"``.

    `valid` (B, T) is True where the target time is within the episode. If columns have different
    times, `valid` is a dict with one mask per column, or an array (B, T, columns of times) with
    ``fused=True``. `episodes` (B) holds the episode indices, and `times` (T) the target times in
    seconds from the start of each episode.
    """

    valid: Any = None
    episodes: Indices
    times: NDArray[numpy.float64]


class Batches:
    """One pass over the batches of a loader: an iterator that can be closed early.

    >>> dataset = robot.Dataset(path)
    >>> with iter(robot.Loader(dataset, "action", at=30, steps=10, batch=2)) as batches:
    ...     first = next(batches)  # the batches in flight are dropped
    >>> first.episodes
    array([0, 1])
    """

    def __init__(self, loader: "Loader", batches: list[Indices],
                 recorder: _core.Timeline | None) -> None:
        self._loader, self._over = loader, HandOver()
        # The thread does not refer to this object, so that dropping the iterator ends the run.
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
        """Ends the pass: batches in flight are dropped, and the threads end."""
        self._over.close()
        self._over.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # if __init__ failed
            self._over.close()  # does not wait, as this may run on any thread


class Loader:
    """Iterates over episodes in batches, with all columns resampled to common target times.

    `columns` are column names, names with modes (``{"action": "previous"}``), or :class:`Signal`.
    `at` gives the target times: either a rate in Hz, for `seconds` or `steps` or, by default, for
    the duration of the longest episode in the batch; or a list of times in seconds from the start
    of an episode. Beyond the end of an episode, the last sample is repeated and `valid` is False;
    `outside` and `fill` change that as in :func:`penstock.resample`.

    Columns keep their dtypes. `dtype` sets another one for floating-point columns; f16 and bf16 are
    computed in f32 and rounded once. With `fused`, all columns are side by side in one array, at
    :attr:`slices`. `like` is ``"torch"``, ``"numpy"`` or ``"penstock"``; by default arrays are
    torch tensors if torch is installed, and otherwise NumPy arrays on the CPU and Penstock arrays
    on a GPU.

    `shuffle` shuffles the episodes in every pass, with `seed` and :attr:`epoch`, which counts the
    passes and can be set. While the caller works on a batch, up to `prefetch` further batches are
    prepared. `threads` is the number of threads that decode files.

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
        """The position of each column in fused arrays. Columns with the same times are adjacent."""
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
        """Starts one pass. `recorder` records when each stage worked on which batch."""
        self._refuse_worker()
        order = self._episodes
        if self._shuffle:
            order = numpy.random.default_rng([self._seed, self.epoch]).permutation(order)
        self.epoch += 1
        batches = list(_engine.in_batches(order, self._settings.batch, self._drop_last))
        return Batches(self, batches, recorder)

    def torch(self) -> Any:
        """Returns a ``torch.utils.data.IterableDataset`` whose elements are whole batches::

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
        raise Unsupported(_ONE_PROCESS)  # pickled for a worker process

    def _refuse_worker(self) -> None:
        torch = sys.modules.get("torch.utils.data")
        if os.getpid() != self._process or (torch and torch.get_worker_info() is not None):
            raise Unsupported(_ONE_PROCESS)

    def _lend(self) -> _engine.Engine:
        """An engine that no other pass is using."""
        with suppress(IndexError):
            return self._idle.pop()
        return _engine.Engine(self._settings)

    def _keep(self, engine: _engine.Engine) -> None:
        self._idle.append(engine)


_ONE_PROCESS = ("a robot.Loader has its own threads and works only in the process that created it: "
                "use num_workers=0 in torch's DataLoader, or create a Loader in each process")


def _chosen(dataset: Dataset, episodes: Iterable[int] | None, batch: int) -> tuple[Indices, int]:
    """The selected episodes, and the largest number of samples in a batch of them."""
    every = dataset.episodes
    chosen, lengths = every.indices, every.lengths
    if episodes is not None:
        chosen = numpy.array([int(episode) for episode in episodes], numpy.int64)
        lengths = every.lengths[[every.place(episode) for episode in chosen.tolist()]]
    if (lengths <= 0).any():
        raise InvalidArgument("episodes", "episodes with samples",
                              f"{chosen[lengths <= 0][0]}, which has none")
    return chosen, int(numpy.sort(lengths)[::-1][:batch].sum())
