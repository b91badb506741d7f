"""Times loading a checkpoint with penstock.weights next to its floor: the disk, or the link to the device.

    python3 bench/checkpoint_loading.py --output bench/results/checkpoint_loading.json --directory /data

The checkpoint is synthetic, of several files, with tensors of the sizes of Qwen3-30B-A3B. It is loaded
into new host memory, into page-locked memory, and to the device; and its experts are loaded into a new
ExpertStore, as penstock.hf.load() does. Engines alone are timed in the same interleaved passes: the disk by
bare reads past the page cache of whole files, with several block sizes and numbers of threads; for the
device, copies from page-locked memory; and a new ExpertStore that is not filled. The floor is the best pass
of the slower engine. The first touch of as much new memory is timed, too. It is no floor: how long it takes
depends on whether the system has huge pages at that moment. Files leave the page cache before every pass.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import penstock
from penstock import weights
from penstock._expert_reader import ExpertReader
from penstock._hf_names import Source
from penstock._progress import ByteProgress
from penstock.bench import _results
from penstock.bench._floor import Floor

MIB, PAGE, SEED = 1 << 20, 4096, 1
SHARDS = 4
HIDDEN, WIDTH, ROWS = 2048, 768, 16384  # of a token, an expert, and a table of embeddings
EXPERTS = 4  # of a layer
PARTS = (("gate", "gate_up", 0), ("up", "gate_up", HIDDEN * WIDTH), ("down", "down", 0))
IN_STORE = "experts into an ExpertStore"
WAYS = ((1, 16), (4, 8), (16, 4))  # MiB of a bare read, and threads
TOUCHED_AT_ONCE, COPIED_AT_ONCE = 8 * MIB, 8 * MIB


def shapes_of(total):
    """Names and shapes of 2-byte tensors of about `total` bytes: a table, then layers of experts and norms."""
    rows = min(ROWS, max(1, total // (8 * HIDDEN)))
    yield "model.embed_tokens.weight", (rows, HIDDEN)
    for layer in range(max(1, (total - 2 * rows * HIDDEN) // (EXPERTS * len(PARTS) * 2 * HIDDEN * WIDTH))):
        yield f"model.layers.{layer}.input_layernorm.weight", (HIDDEN,)
        for expert in range(EXPERTS):
            for name, *_ in PARTS:
                yield name_of(layer, expert, name), (HIDDEN, WIDTH) if name == "down" else (WIDTH, HIDDEN)


def name_of(layer, expert, part):
    return f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"


def write_checkpoint(folder, total):
    """Returns the tensors: windows of the same random numbers, each at another offset."""
    draw = numpy.random.default_rng(SEED)
    shapes = dict(shapes_of(total))
    most = max(int(numpy.prod(shape)) for shape in shapes.values())
    numbers = draw.integers(0, 1 << 16, most + MIB, numpy.uint16)
    tensors = {}
    for name, shape in shapes.items():
        begin = int(draw.integers(MIB))
        tensors[name] = numbers[begin:begin + int(numpy.prod(shape))].reshape(shape)
    nbytes = sum(each.nbytes for each in tensors.values())
    weights.save(folder / "model.safetensors", tensors, shard_bytes=nbytes // SHARDS + most * 2)
    return tensors


class Disk:
    """The files of a checkpoint, read as one would by hand."""

    def __init__(self, paths):
        self.sizes = [os.path.getsize(path) for path in paths]
        self._cached = [os.open(path, os.O_RDONLY) for path in paths]
        self.direct = True
        try:
            self._files = [os.open(path, os.O_RDONLY | os.O_DIRECT) for path in paths]
            os.preadv(self._files[0], [penstock.empty(PAGE, "u8", device="cpu").numpy()], 0)
        except OSError:
            self.direct, self._files = False, self._cached
        for file in self._cached:
            os.fsync(file)  # pages can only leave the page cache once they are on the disk

    def forget(self):
        """The page cache drops the files."""
        for file in self._cached:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    def reader(self, block, threads):
        """Reads all bytes, each block into memory of the thread that reads it."""
        memory = penstock.empty((threads, block), "u8", device="cpu").numpy()  # of huge pages
        todo = [(file, begin) for file, size in zip(self._files, self.sizes, strict=True)
                for begin in range(0, size, block)]
        total = sum(self.sizes)

        def read_some(thread):
            return sum(os.preadv(file, [memory[thread]], begin) for file, begin in todo[thread::threads])

        def read():
            with ThreadPoolExecutor(threads) as pool:
                got = sum(pool.map(read_some, range(threads)))
            if got != total:
                raise RuntimeError(f"bare read: {got} of {total} bytes")

        return read


def touching(nbytes, threads):
    """Takes new memory and touches all of its pages."""
    def touch():
        memory = penstock.empty(nbytes, "u8", device="cpu").numpy()

        def touch_some(begin):
            memory[begin:begin + TOUCHED_AT_ONCE:PAGE] = 1

        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(touch_some, range(0, nbytes, TOUCHED_AT_ONCE)):
                pass

    return touch


def uploading(device, source, target, sizes):
    """Copies as many bytes from page-locked memory."""
    stream = penstock.Stream(device)

    def upload():
        at = 0
        for size in sizes:
            penstock.copy(target[at:at + size], source[:size], stream)
            at += size
        stream.synchronize()

    return upload


def placed(memory, checkpoint, as_in_files):
    """Views for all tensors, one after the other. `as_in_files`: as far behind a multiple of a page as
    the file has the tensor, so that reads of it bypass the page cache; else at such multiples."""
    views, at = {}, 0
    for name in checkpoint:
        offset, nbytes = checkpoint._files.info(name)[3:]
        at += -at % PAGE + (offset % PAGE if as_in_files else 0)
        views[name] = memory[at:at + nbytes]
        at += nbytes
    return views


class Experts:
    """The experts of a checkpoint, loaded into a new store at each pass."""

    def __init__(self, checkpoint, device):
        self._checkpoint, self._device = checkpoint, device
        self._layers = sum(name.endswith("input_layernorm.weight") for name in checkpoint)
        self._sources = [self._source(layer, expert, *part) for layer in range(self._layers)
                         for expert in range(EXPERTS) for part in PARTS]
        self.nbytes = 2 * sum(source.count for source in self._sources)
        self._store = None

    def allocate(self):
        """Makes a new store, whose memory is locked in the background if the device is a GPU."""
        self._store = None  # gives the memory of the last pass back
        self._store = penstock.ExpertStore(layers=self._layers, experts=EXPERTS, hidden=HIDDEN, width=WIDTH,
                                           device=self._device)

    def lock(self):
        self.allocate()
        self._store.down(self._layers - 1, EXPERTS - 1)  # waits until all memory is locked

    def load(self):
        self.allocate()
        with ByteProgress("", self.nbytes, False) as progress:
            ExpertReader(self._checkpoint, self._sources, "bf16").fill(self._store, progress)

    def are(self, tensors):
        """Whether the last pass loaded these."""
        for layer in range(self._layers):
            for expert in range(EXPERTS):
                gate, up, down = (tensors[name_of(layer, expert, name)] for name, *_ in PARTS)
                if not (numpy.array_equal(self._store.gate_up(layer, expert), numpy.concatenate([gate, up]))
                        and numpy.array_equal(self._store.down(layer, expert), down)):
                    return False
        return True

    def _source(self, layer, expert, name, part, begin):
        tensor = name_of(layer, expert, name)
        return Source(tensor, layer, expert, part, begin, HIDDEN * WIDTH,
                      place=self._checkpoint._files.info(tensor)[2:4])


class Loads:
    """The ways to load, and the tensors that the last pass loaded, as bytes on the host."""

    def __init__(self, folder, tensors, device, threads):
        self.checkpoint = weights.open(folder)
        self.tensors, self.device, self.folder = tensors, device, folder
        room = self.checkpoint.nbytes + 2 * PAGE * len(tensors)
        self._loaded = None
        self._one = penstock.empty(max(each.nbytes for each in tensors.values()), "u8", device=device)
        pinned = penstock.empty(room, "u8", device=device)
        self.ways = {"host memory": self._into_new_memory}
        self.touch = touching(room, threads)
        self.engines, self.engines_of = {}, {"host memory": ("disk",)}
        self._views = {"page-locked memory": placed(pinned, self.checkpoint, True),
                       "page-locked memory, page-aligned": placed(pinned, self.checkpoint, False)}
        if device.kind == "cuda":
            there = penstock.empty(room, "u8", memory="device", device=device)
            self._views["device"] = placed(there, self.checkpoint, False)
            sizes = [min(COPIED_AT_ONCE, self.checkpoint.nbytes - at)
                     for at in range(0, self.checkpoint.nbytes, COPIED_AT_ONCE)]
            self.engines["link"] = uploading(device, pinned, there, sizes)
        self._experts = Experts(self.checkpoint, device)
        self.ways[IN_STORE] = self._experts.load
        self.engines["new ExpertStore"] = self._experts.lock
        self.engines_of[IN_STORE] = ("disk", "new ExpertStore")
        self.nbytes_of = {IN_STORE: self._experts.nbytes}
        for name, views in self._views.items():
            self.ways[name] = lambda views=views: weights.open(self.folder).read_into(views)
            self.engines_of[name] = ("disk", "link") if name == "device" else ("disk",)

    def _into_new_memory(self):
        self._loaded = None  # gives the memory of the last pass back
        self._loaded = weights.load(self.folder)

    def is_right(self, name):
        """Poisons memory, loads, and compares all bytes."""
        views = self._views.get(name)
        self._one.numpy()[:] = 0xA5
        for view in views.values() if views else ():
            penstock.copy(view, self._one[:view.nbytes])
        self.ways[name]()
        if name == IN_STORE:
            return self._experts.are(self.tensors)
        for tensor, wanted in self.tensors.items():
            got = self._loaded[tensor] if views is None else self._on_host(views[tensor])
            if not numpy.array_equal(got.reshape(-1).view("u1"), wanted.reshape(-1).view("u1")):
                return False
        return True

    def _on_host(self, view):
        there = self._one[:view.nbytes]
        penstock.copy(there, view)
        return there.numpy()


def passes(works, before, repeats):
    """The seconds of every pass of each, in interleaved passes, forwards and backwards; the first of
    each is not counted."""
    times = {name: [] for name in works}
    for number in range(1 + repeats):
        for name in list(works)[::1 if number % 2 else -1]:
            before()
            begin = time.perf_counter()
            works[name]()
            if number:
                times[name].append(time.perf_counter() - begin)
    return times


def floor_of(*taken):
    floor = Floor()
    for seconds in taken:
        for each in seconds:
            floor.add(each * 1e6)
    return floor.us


def measure(directory, device, mebibytes, repeats, threads):
    folder = Path(tempfile.mkdtemp(prefix="penstock_bench_", dir=directory))
    try:
        tensors = write_checkpoint(folder, mebibytes * MIB)
        loads = Loads(folder, tensors, device, threads)
        disk = Disk(loads.checkpoint.files)
        for name in loads.ways:
            if not loads.is_right(name):
                sys.exit(f"{name}: the tensors are not those of the files")
        bare = {f"bare reads, {block} MiB, {count} threads": disk.reader(block * MIB, count)
                for block, count in WAYS}
        seconds = passes({**bare, **loads.engines, **loads.ways, "first touch": loads.touch}, disk.forget,
                         repeats)
        engines = {name: floor_of(seconds[name]) for name in loads.engines}
        engines["disk"] = floor_of(*(seconds[name] for name in bare))
        every = loads.checkpoint.nbytes
        for name in loads.ways:
            nbytes = loads.nbytes_of.get(name, every)
            ours = statistics.median(seconds[name]) * 1e6
            mine = {each: engines[each] * (nbytes / every if each == "disk" else 1)
                    for each in loads.engines_of[name]}
            floor = max(mine.values())
            yield {
                "case": name,
                "params": {"bytes": nbytes, "files": len(disk.sizes), "tensors": len(tensors),
                           "direct": disk.direct},
                "correct": True, "max_error": 0, "tolerance": 0, "floor_us": floor,
                "ours": {"call_us": ours}, "peer": {},
                "metrics": {"GBps": nbytes / ours * 1e-3, "of_floor": floor / ours,
                            "best_us": min(seconds[name]) * 1e6, "engines_us": mine,
                            "first_touch_us": min(seconds["first touch"]) * 1e6,
                            "bare_us": {way: statistics.median(seconds[way]) * 1e6 for way in bare}},
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="results file to write")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: the first GPU if there is one)")
    parser.add_argument("--directory", type=Path, default=Path("."),
                        help="folder on the disk to measure (default: the current one)")
    parser.add_argument("--mib", type=int, default=1536, help="size of the checkpoint (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="passes of each way (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=min(8, len(os.sched_getaffinity(0))),
                        help="threads that touch new memory (default: %(default)s)")
    args = parser.parse_args()
    if args.output:
        _results.check_writable("--output", args.output)
    for option in ("mib", "repeats", "threads"):
        if getattr(args, option) < 1:
            parser.error(f"--{option}: expected at least 1, got {getattr(args, option)}")
    device = penstock.Device(args.device)
    results = _results.document("checkpoint_loading", device, penstock.limits(device, quick=True), SEED, {})
    for case in measure(args.directory, device, args.mib, args.repeats, args.threads):
        name, ours, floor = case["case"], case["ours"]["call_us"], case["floor_us"]
        alone = ", ".join(f"{engine} alone {us / 1e3:.1f} ms"
                          for engine, us in case["metrics"]["engines_us"].items())
        print(f"{name}: {ours / 1e3:.1f} ms, {case['metrics']['GBps']:.2f} GB/s, {floor / ours:.3f} of its "
              f"floor; {alone}", flush=True)
        _results.add(results, case)
    if args.output:
        _results.write(args.output, results)


if __name__ == "__main__":
    main()
