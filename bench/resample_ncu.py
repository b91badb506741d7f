"""What ncu counts of resample and of the baseline, shape by shape.

    python3 bench/resample_ncu.py --output bench/results/resample_ncu.json

Results are checked first; then each kernel runs under ncu, a process of its own for every shape.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import penstock
import triton  # the baseline's
from penstock.bench import _results
from penstock.bench._counters import TIME

OURS, PEER = "best", "baseline"
SEED = 1


def harness(*words):
    done = subprocess.run([sys.executable, "-m", "penstock.bench", *words], stdout=subprocess.PIPE,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"penstock bench {' '.join(words)}: ended with {done.returncode}")
    return done.stdout


def chosen():
    """Regular times: random ones differ in what they skip."""
    listed = json.loads(harness("resample", "--list", "--json"))["resample"]
    return [case for case in listed["cases"] if "regular" in case]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="results file to write")
    args = parser.parse_args()
    if args.output:
        _results.check_writable("--output", args.output)
    device = penstock.Device()
    names = chosen()
    harness("resample", "--mode", "correctness", "--kernel", OURS, "--seed", str(SEED), "--case", *names)
    said = json.loads(harness("resample", "--mode", "ncu", "--kernel", OURS, "--kernel", PEER,
                              "--seed", str(SEED), "--json", "--case", *names))
    results = _results.document("resample_ncu", device, penstock.limits(device, quick=True), SEED,
                                {PEER: triton.__version__})
    for case in said["cases"]:
        times = {kernel: {"gpu_us": profile[TIME] / said["calls"] * 1e6}
                 for kernel, profile in case["profiles"].items()}
        results["cases"].append({
            "case": case["case"], "correct": True, "ours": times[OURS], "peer": {PEER: times[PEER]},
            "metrics": {"counters": case["profiles"][OURS],
                        "peer_counters": {PEER: case["profiles"][PEER]}}})
    if args.output:
        _results.write(args.output, results)


if __name__ == "__main__":
    main()
