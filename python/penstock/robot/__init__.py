"""Loads robot episodes from LeRobot datasets (Parquet) in batches, resampled to common target times.

>>> from penstock import robot
>>> dataset = robot.Dataset(path)  # layout 2.0, 2.1 or 3.0
>>> loader = robot.Loader(dataset, ["observation.state", "action"], at=50, seconds=2, batch=4)
>>> for batch in loader:
...     state, mask = batch["observation.state"], batch.valid
>>> tuple(state.shape), tuple(mask.shape)
((4, 100, 3), (4, 100))

The loader's threads decode the files, upload and resample the next batches while the caller works
on the current one. It needs pyarrow: ``pip install penstock[robot]``.
"""

from ._dataset import Dataset
from ._loader import Batch, Batches, Loader
from ._metadata import Episode, Episodes, Feature
from ._signals import Signal

__all__ = ["Batch", "Batches", "Dataset", "Episode", "Episodes", "Feature", "Loader", "Signal"]
