"""Times resample on one core next to SciPy and NumPy, in interleaved runs.

    python3 bench/resample_scipy.py --output bench/results/resample_scipy.json

Only this benchmark needs SciPy (pip install scipy); without it, the results say that it was absent. All
columns are peers, which may be beaten; there is no floor.
"""

import argparse
import os
import statistics
import time
from pathlib import Path

# Before the library counts cores and starts threads, so that all of them share one core.
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import numpy  # noqa: E402
import penstock  # noqa: E402
from penstock.bench import _results  # noqa: E402

try:
    import scipy
    from scipy.interpolate import interp1d, make_interp_spline
except ImportError:
    scipy = None

SHAPES = [(512, 1000, 500, 64), (256, 500, 256, 256), (64, 4096, 1024, 128), (256, 500, 250, 32),
          (2048, 100, 50, 14), (32, 50, 32, 16)]  # B, S, T, D
SEED, TOLERANCE = 1, 2.0**-22
ABSENT = "absent (pip install scipy)"


def draw(random, count, regular):
    if not regular:  # no duplicates, which splines refuse
        drawn = random.choice(1 << 24, count, replace=False, shuffle=False)
        return numpy.sort(drawn).astype("f4") / (1 << 24)
    jitter = 0.2 * (random.random(count, dtype="f4") - 0.5)
    return ((numpy.arange(count) + jitter) / count).astype("f4")


class Data:
    """Episodes in f32, which all candidates accept, and target times within each."""

    def __init__(self, shape, regular):
        episodes, samples, targets, columns = shape
        random = numpy.random.default_rng(SEED)
        self.times = numpy.stack([draw(random, samples, regular) for _ in range(episodes)])
        self.values = random.random((episodes, samples, columns), dtype="f4")
        first, last = self.times[:, :1], self.times[:, -1:]
        at = (numpy.linspace(0, 1, targets, dtype="f4")[None] if regular
              else numpy.sort(random.random((episodes, targets), dtype="f4")))
        self.at = numpy.clip(first + (last - first) * at, first, last)
        self.out = numpy.full((episodes, targets, columns), numpy.nan, "f4")

    def episodes(self):
        return zip(self.times, self.values, self.at, self.out)


def ours(data):
    penstock.resample(data.values, data.times, data.at, out=data.out)


def by_interp1d(data):
    for times, values, at, out in data.episodes():
        out[:] = interp1d(times, values, axis=0, assume_sorted=True)(at)


def by_spline(data):
    for times, values, at, out in data.episodes():
        out[:] = make_interp_spline(times, values, k=1)(at)


def by_numpy(data):
    for times, values, at, out in data.episodes():
        for column in range(values.shape[1]):
            out[:, column] = numpy.interp(at, times, values[:, column])


def works():
    found = {"ours": ours, "numpy.interp": by_numpy}
    if scipy:
        found |= {"scipy interp1d": by_interp1d, "scipy make_interp_spline": by_spline}
    return found


def largest_error(data):
    """The largest difference from a computation in f64 with numpy.searchsorted."""
    worst = 0.0
    for times, values, at, out in data.episodes():
        index = numpy.clip(numpy.searchsorted(times, at, side="right") - 1, 0, len(times) - 2)
        a, b = times[index].astype("f8"), times[index + 1].astype("f8")
        weight = numpy.clip((at - a) / numpy.where(b > a, b - a, 1), 0, 1)[:, None]
        left, right = values[index].astype("f8"), values[index + 1].astype("f8")
        worst = max(worst, float(numpy.abs(left + weight * (right - left) - out).max()))
    return worst


def measure(shape, regular, turns):
    data = Data(shape, regular)
    seconds = {name: [] for name in works()}
    ours(data)
    error = largest_error(data)
    for turn in range(1 + turns):  # the first does not count
        for name, work in works().items():
            begin = time.perf_counter()
            work(data)
            if turn:
                seconds[name].append(time.perf_counter() - begin)
    us = {name: statistics.median(taken) * 1e6 for name, taken in seconds.items()}
    times = {name: value / us["ours"] for name, value in us.items() if name != "ours"}
    return {
        "case": f"({shape[0]}, {shape[1]} to {shape[2]}, {shape[3]}) f32, "
                f"{'regular' if regular else 'random'} times, one core",
        "params": dict(zip(("episodes", "samples", "targets", "columns"), shape))
        | {"regular": regular, "turns": turns},
        "correct": bool(error <= TOLERANCE), "max_error": error, "tolerance": TOLERANCE,
        "ours": {"call_us": us["ours"]},
        "peer": {name: {"call_us": us[name]} for name in times},
        "metrics": {"times_faster_than": times,
                    "least_and_most_us": {name: [min(taken) * 1e6, max(taken) * 1e6]
                                          for name, taken in seconds.items()}},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="results file to write")
    parser.add_argument("--turns", type=int, default=5, help="timed runs per candidate")
    args = parser.parse_args()
    if args.output:
        _results.check_writable("--output", args.output)
    device = penstock.Device("cpu")
    version = scipy.__version__ if scipy else ABSENT
    if not scipy:
        print(f"scipy is {ABSENT}: only numpy.interp is compared")
    peers = {"numpy.interp": numpy.__version__, "scipy interp1d": version,
             "scipy make_interp_spline": version}
    results = _results.document("resample_scipy", device, penstock.limits(device, quick=True), SEED,
                                peers)
    for shape in SHAPES:
        for regular in (True, False):
            case = measure(shape, regular, args.turns)
            if not case["correct"]:
                raise SystemExit(f"{case['case']}: largest error {case['max_error']}, expected at most "
                                 f"{TOLERANCE}")
            print(f"{case['case']}: {case['ours']['call_us'] / 1e3:.1f} ms; "
                  + ", ".join(f"{times:.1f} times as fast as {name}"
                              for name, times in case["metrics"]["times_faster_than"].items()))
            results["cases"].append(case)
    if args.output:
        _results.write(args.output, results)


if __name__ == "__main__":
    main()
