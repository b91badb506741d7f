"""Times robot.Loader next to its floor: decoding alone, or the link to the device alone.

    python3 bench/loading.py --output bench/results/loading.json

Decoding alone is pyarrow with as many threads as the loader: every row group once, only the columns
that the loader needs, several files per task, read or memory-mapped, whichever is faster. Uploading
alone copies the same bytes from page-locked memory. The floor is the best pass of the slower of the
two. The loader's own reading is timed too, to show where its time goes; it is no floor.
"""

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import penstock
import pyarrow
from penstock import robot
from penstock.bench import _results
from penstock.bench._floor import Floor
from penstock.robot import _engine, _reading
from pyarrow import parquet

ROOT = Path(__file__).resolve().parent.parent
EPISODES, BATCH, STATE, ACTION = 960, 32, 64, 32
COLUMNS = ["observation.state", "action"]
RATE, SECONDS, REPEATS, SEED = 50, 20, 5, 1
CACHE = 16 << 20  # bytes: holds a few files, so that every pass has to decode again
FILES_PER_TASK = 8
TOLERANCE = 1e-5


def write_dataset(folder, layout):
    """Writes random episodes with the functions of examples/python/robot.py."""
    spec = importlib.util.spec_from_file_location("example", ROOT / "examples/python/robot.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    random = numpy.random.default_rng(SEED)
    episodes = []
    for length in random.integers(400, 800, EPISODES):
        times = numpy.arange(length) / example.FPS + random.uniform(0, 0.5 / example.FPS, length)
        episodes.append({"observation.state": random.random((length, STATE), numpy.float32),
                         "action": random.random((length, ACTION), numpy.float32),
                         "timestamp": times - times[0]})
    features = {name: {"dtype": "float32", "shape": [width], "names": None}
                for name, width in (("observation.state", STATE), ("action", ACTION))}
    example.write_dataset(folder, layout, episodes, features, episodes_per_file=BATCH)


def passes(**works):
    """The seconds of every pass of each, in interleaved runs; the first opens files and allocates."""
    times = {name: [] for name in works}
    for _ in range(1 + REPEATS):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - begin)
    return {name: taken[1:] for name, taken in times.items()}


def decoding(dataset, threads, open_file):
    """pyarrow alone: every row group once, the columns that the loader needs, as Arrow tables."""
    paths = sorted({episode.path for episode in dataset.episodes})
    groups = [(path, group) for path in paths
              for group in range(parquet.read_metadata(path).num_row_groups)]
    # Several small files per task, as one task per file costs more than it gains.
    size = max(1, min(FILES_PER_TASK, len(groups) // (4 * threads)))
    tasks = [groups[i:i + size] for i in range(0, len(groups), size)]

    def decode_some(task):
        for path, group in task:
            with open_file(str(path)) as source:
                parquet.ParquetFile(source).read_row_group(
                    group, columns=[*COLUMNS, "timestamp"], use_threads=False)

    def decode():
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(decode_some, tasks):
                pass

    return decode


def reading(loader):
    """The loader's own reading: its threads, with as many batches in flight, and nothing after it."""
    settings = loader._settings
    reader = _reading.Reader(settings.dataset,
                             [column for block in settings.blocks for column in block.columns],
                             settings.time_columns, settings.threads)
    batches = list(_engine.in_batches(loader.dataset.episodes.indices, settings.batch, False))

    def read():
        with ThreadPoolExecutor(settings.threads) as pool:
            ahead = deque()
            for episodes in batches:
                if len(ahead) == settings.begun:
                    ahead.popleft().wait()
                ahead.append(reader.begin(pool, reader.episodes(episodes), lambda piece: None))
            for last in ahead:
                last.wait()

    return read


def uploading(device, sizes):
    """Copies from page-locked memory to the device; on the CPU, to other host memory."""
    stream = penstock.Stream(device)
    memory = "device" if device.kind == "cuda" else "pinned"
    source = penstock.empty(max(sizes), "u8", device=device)
    source.numpy()[:] = 1
    room = penstock.empty(max(sizes), "u8", memory=memory, device=device)

    def upload():
        for size in sizes:
            penstock.copy(room[:size], source[:size], stream)
        stream.synchronize()

    return upload


def loading(loader):
    def load():
        for _ in loader:
            pass

    return load


def on_host(array):
    return numpy.asarray(array.cpu() if hasattr(array, "cpu") else array)


def largest_error(dataset, loader):
    """The largest difference from numpy.interp, over all columns of all episodes."""
    worst = 0.0
    for batch in loader:
        at = batch.times.astype(numpy.float32).astype(numpy.float64)
        got = {name: on_host(batch[name]) for name in COLUMNS}
        for place, episode in enumerate(batch.episodes):
            samples = dataset.read(episode, [*COLUMNS, "timestamp"])
            for name in COLUMNS:
                for number, column in enumerate(samples[name].T):
                    wanted = numpy.interp(at, samples["timestamp"], column)
                    worst = max(worst, float(numpy.abs(got[name][place, :, number] - wanted).max()))
    return worst


def measure(layout, device, threads):
    with tempfile.TemporaryDirectory() as folder:
        write_dataset(Path(folder), layout)
        dataset = robot.Dataset(folder, cache_bytes=CACHE)
        loader = robot.Loader(dataset, COLUMNS, at=RATE, seconds=SECONDS, batch=BATCH, device=device,
                              threads=threads)
        error = largest_error(dataset, loader)
        lengths = dataset.episodes.lengths.reshape(-1, BATCH).sum(axis=1)
        sizes = [int(length) * ((STATE + ACTION) * 4 + 8) for length in lengths]
        seconds = passes(decode=decoding(dataset, threads, pyarrow.OSFile),
                         mapped=decoding(dataset, threads, pyarrow.memory_map),
                         link=uploading(device, sizes), loader=loading(loader),
                         reading=reading(loader))
    decode, link = Floor(), Floor()
    for taken in [*seconds["decode"], *seconds["mapped"]]:
        decode.add(taken * 1e6)
    for taken in seconds["link"]:
        link.add(taken * 1e6)
    ours = statistics.median(seconds["loader"])
    return {
        "case": f"loader, layout {layout}",
        "params": {"episodes": EPISODES, "batch": BATCH, "columns": STATE + ACTION, "rate": RATE,
                   "seconds": SECONDS, "threads": threads, "cache_bytes": CACHE},
        "correct": error <= TOLERANCE, "max_error": error, "tolerance": TOLERANCE,
        "floor_us": max(decode.us, link.us),
        "ours": {"call_us": ours * 1e6}, "peer": {},
        "metrics": {"bytes": sum(sizes), "GBps": sum(sizes) / ours * 1e-9,
                    "engines_us": {"decode": decode.us, "link": link.us},
                    "reading_us": statistics.median(seconds["reading"]) * 1e6,
                    "episodes_per_second": EPISODES / ours},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="results file to write")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: the first GPU if there is one)")
    parser.add_argument("--threads", type=int, default=4,
                        help="number of decoding threads (default: %(default)s)")
    args = parser.parse_args()
    if args.output:
        _results.check_writable("--output", args.output)
    device = penstock.Device(args.device)
    results = _results.document("loading", device, penstock.limits(device, quick=True), SEED, {})
    for layout in ("v2.1", "v3.0"):
        case = measure(layout, device, args.threads)
        if not case["correct"]:
            sys.exit(f"{case['case']}: largest error {case['max_error']}, expected at most "
                     f"{TOLERANCE}")
        ours, floor, engines = (case["ours"]["call_us"], case["floor_us"],
                                case["metrics"]["engines_us"])
        shown = {"loader": ours, "decoding alone": engines["decode"],
                 "link alone": engines["link"], "loader's reading": case["metrics"]["reading_us"]}
        print(f"{case['case']}: " + ", ".join(f"{name} {us / 1e3:.1f} ms"
                                              for name, us in shown.items())
              + f"; {ours / floor:.3f} x its floor")
        _results.add(results, case)
    if args.output:
        _results.write(args.output, results)


if __name__ == "__main__":
    main()
