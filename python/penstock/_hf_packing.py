"""penstock.hf.load() with experts on a disk: the file in which they are packed."""

import errno
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

from . import _core
from ._errors import InvalidArgument
from ._experts import ExpertStore
from ._hf_streaming import Experts, Options
from ._packed_experts import DiskExpertStore, ExpertFileInfo, expert_file_info
from ._progress import ByteProgress

# Read at a time, before it is written.
_BATCH = 1 << 28
_LEAST_SLOTS = 2

# Reads experts, given as pairs of layer and expert, into a store with one layer of that many.
Read = Callable[[list[tuple[int, int]], ExpertStore], None]


def check(options: Options, experts: Experts, layers: int) -> None:
    """Refuses options with which packing or opening would fail, before anything is read."""
    total = experts.shape(layers).nbytes
    least = min(_LEAST_SLOTS, layers * experts.experts) * (total // (layers * experts.experts))
    if (options.host_bytes or 0) < least:
        raise InvalidArgument("host_memory", f"at least {least} bytes, for {_LEAST_SLOTS} experts",
                              str(options.host_bytes))
    if os.path.exists(options.packed):
        _check_sizes(expert_file_info(options.packed), experts, layers)
        return
    folder = os.path.dirname(os.path.abspath(options.packed))
    if not os.path.isdir(folder):
        raise InvalidArgument("packed", "a path in a folder that exists", repr(options.packed))
    free = shutil.disk_usage(folder).free
    if total > free:
        raise OSError(errno.ENOSPC, f"packed: expected {total} free bytes for the experts, given {free}",
                      options.packed)


def opened(options: Options, experts: Experts, layers: int, where: str, read: Read) -> DiskExpertStore:
    """The store of the packed experts of the checkpoint `where`. Packs them if the file is not there."""
    assert options.host_bytes is not None
    is_new = not os.path.exists(options.packed)
    if is_new:
        _pack(options, experts, layers, read)
    store = DiskExpertStore(options.packed, host_bytes=options.host_bytes, device=options.device,
                            policy=options.policy)
    _check_sizes(store.file, experts, layers)
    if not is_new:
        _compare(store, experts, where, read)
    if options.progress:
        info = store.file
        print(f"Packed experts: {os.path.abspath(info.path)}, {info.nbytes / 2**30:.1f} GiB, packed in "
              f"{info.pack_seconds:.1f} s on {info.created:%Y-%m-%d at %H:%M:%S}", file=sys.stderr,
              flush=True)
    return store


def _pack(options: Options, experts: Experts, layers: int, read: Read) -> None:
    shape = experts.shape(layers)
    count = layers * experts.experts
    block = shape.nbytes // count
    room = experts.plain(max(1, min(_BATCH // block, count)))
    with ByteProgress("Packing experts", shape.nbytes, options.progress) as progress:

        def fill(first: int, some: int) -> None:
            read([divmod(number, experts.experts) for number in range(first, first + some)], room)
            progress.add(some * block)

        _core.pack_filled(options.packed, shape, room._core, fill)


def _check_sizes(info: ExpertFileInfo, experts: Experts, layers: int) -> None:
    def described(layers: int, of: Any) -> str:
        return (f"{layers} layers of {of.experts} experts with hidden size {of.hidden} and width "
                f"{of.width}, {of.dtype}, {of.layout}" + (", transposed" if of.transposed else "")
                + (", with biases" if of.bias else ""))

    wanted, given = described(layers, experts), described(info.layers, info)
    if given != wanted:
        raise InvalidArgument("packed", f"a file of {wanted}", f"{info.path} with {given}; choose "
                              "another path, or remove the file")


def _compare(store: DiskExpertStore, experts: Experts, where: str, read: Read) -> None:
    """Refuses a file with the experts of another checkpoint, as far as one expert per layer shows."""
    one = experts.plain(1)
    for layer in range(store.layers):
        expert = layer % store.experts
        read([(layer, expert)], one)
        if not store._core.same_expert(layer, expert, one._core, 0):
            raise InvalidArgument("packed", f"a file with the experts of {where}",
                                  f"{store.file.path}, where expert {expert} of layer {layer} has other "
                                  "weights; choose another path, or remove the file")
