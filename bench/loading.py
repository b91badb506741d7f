"""What a robot.Loader adds to decoding and to the link, each measured alone in the same run.

    python3 bench/loading.py --output bench/results/loading.json

Decoding alone is Dataset.read of one episode after the other, by as many threads. The loader's threads
read the same files by the same calls of pyarrow, but several episodes as one, and where a file holds
many, some files at once; so it can be faster than decoding alone. That part of it is measured alone, too:
the limit is the faster of the two ways to decode, or the link.
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
from penstock import robot
from penstock.bench import _results
from penstock.robot import _engine, _reading

ROOT = Path(__file__).resolve().parent.parent
EPISODES, BATCH, STATE, ACTION = 960, 32, 64, 32
COLUMNS = ["observation.state", "action"]
RATE, SECONDS, REPEATS, SEED = 50, 20, 5, 1
CACHE = 16 << 20  # bytes: a few files, so that every pass decodes anew
TOLERANCE = 1e-5


def write_dataset(folder, layout):
    """By the example, which makes datasets of either layout."""
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


def medians(**works):
    """Seconds of each, by turns, after one that opens files and makes room."""
    times = {name: [] for name in works}
    for _ in range(1 + REPEATS):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def decoding(dataset, threads):
    def decode():
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(lambda episode: dataset.read(episode, [*COLUMNS, "timestamp"]),
                              dataset.episodes.indices.tolist()):
                pass

    return decode


def reading(loader):
    """What the loader's threads do, as many batches at once, and nothing else of it."""
    told = loader._told
    reader = _reading.Reader(told.dataset, [column for block in told.blocks for column in block.columns],
                             told.time_columns, told.threads)
    batches = list(_engine.in_batches(loader.dataset.episodes.indices, told.batch, False))

    def read():
        with ThreadPoolExecutor(told.threads) as pool:
            ahead = deque()
            for episodes in batches:
                if len(ahead) == told.begun:
                    ahead.popleft().wait()
                ahead.append(reader.begin(pool, reader.episodes(episodes), lambda piece: None))
            for last in ahead:
                last.wait()

    return read


def uploading(device, sizes):
    """Page-locked slots onto the device; on the CPU, into other memory."""
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
    """Of every column of every episode, against NumPy's interpolation."""
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
        seconds = medians(decode=decoding(dataset, threads), link=uploading(device, sizes),
                          loader=loading(loader), reading=reading(loader))
    return {
        "case": f"loader, layout {layout}",
        "params": {"episodes": EPISODES, "batch": BATCH, "columns": STATE + ACTION, "rate": RATE,
                   "seconds": SECONDS, "threads": threads, "cache_bytes": CACHE},
        "correct": error <= TOLERANCE, "max_error": error, "tolerance": TOLERANCE,
        "floor_us": max(min(seconds["decode"], seconds["reading"]), seconds["link"]) * 1e6,
        "ours": {"call_us": seconds["loader"] * 1e6}, "peer": {},
        "metrics": {"bytes": sum(sizes), "GBps": sum(sizes) / seconds["loader"] * 1e-9,
                    "decode_us": seconds["decode"] * 1e6, "link_us": seconds["link"] * 1e6,
                    "reading_us": seconds["reading"] * 1e6,
                    "episodes_per_second": EPISODES / seconds["loader"]},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="results file to write")
    parser.add_argument("--device", help="'cpu', or a GPU; the first GPU, else the CPU")
    parser.add_argument("--threads", type=int, default=4, help="that decode")
    args = parser.parse_args()
    if args.output:
        _results.check_writable("--output", args.output)
    device = penstock.Device(args.device)
    results = _results.document("loading", device, penstock.limits(device, quick=True), SEED, {})
    for layout in ("v2.1", "v3.0"):
        case = measure(layout, device, args.threads)
        if not case["correct"]:
            sys.exit(f"{case['case']}: {case['max_error']} from NumPy's interpolation")
        shown = {"decode alone": case["metrics"]["decode_us"],
                 "link alone": case["metrics"]["link_us"], "loader": case["ours"]["call_us"],
                 "its reading alone": case["metrics"]["reading_us"]}
        print(f"{case['case']}: " + ", ".join(f"{name} {us / 1e3:.1f} ms"
                                              for name, us in shown.items())
              + f"; {100 * case['floor_us'] / case['ours']['call_us']:.0f} % of the limit")
        results["cases"].append(case)
    if args.output:
        _results.write(args.output, results)


if __name__ == "__main__":
    main()
