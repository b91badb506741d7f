"""The reader of penstock.hf.load(): batches are read while others are used."""

import threading

import pytest

from penstock import _expert_reader

SECONDS = 30


def test_the_next_batch_is_read_while_one_is_used():
    begun = [threading.Event() for _ in range(4)]
    used = []

    def use(batch):
        following = batch + 1
        if following < len(begun):
            assert begun[following].wait(SECONDS)
        # Its memory is that of the batch which is in use.
        assert not any(each.is_set() for each in begun[batch + 2:])
        used.append(batch)

    _expert_reader._overlap(lambda batch: begun[batch].set(), use, range(4))
    assert used == [0, 1, 2, 3]


def test_two_batches_are_read_at_once():
    both = threading.Barrier(2, timeout=SECONDS)
    _expert_reader._overlap(lambda batch: both.wait(), lambda batch: None, range(4))


def test_an_error_ends_the_reads():
    """The error is raised when the reads in flight have ended."""
    reading, read = [], []

    def fail(batch):
        reading.append(batch)
        if batch == 1:
            raise OSError("the disk")
        read.append(batch)

    with pytest.raises(OSError, match="the disk"):
        _expert_reader._overlap(fail, lambda batch: None, range(9))
    assert sorted(reading) == [0, 1, 2] and sorted(read) == [0, 2]

    def stop(batch):
        raise KeyboardInterrupt

    read.clear()
    with pytest.raises(KeyboardInterrupt):
        _expert_reader._overlap(read.append, stop, range(9))
    assert sorted(read) == [0, 1]


def test_no_batches():
    _expert_reader._overlap(None, None, [])
