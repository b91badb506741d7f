"""What the tests that need a GPU share."""

import penstock


def pinned(values):
    """A copy in page-locked memory."""
    room = penstock.empty(values.shape, values.dtype)
    room.numpy()[...] = values
    return room
