"""The first call of attention in a process, whose CUDA context is there.

    python -m penstock.bench.prefill.first_call DEVICE SEED SHAPE

prints its time until its work is done, in microseconds. SHAPE is JSON.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ... import _core
from .._clock import clock_for
from .._operator import Context
from .shapes import Shape

SECONDS = 120  # until a process is given up


def metrics(context: Context, shape: Shape) -> dict[str, Any]:
    """For a results file: the time, or why there is none."""
    command = [sys.executable, "-m", __name__, context.device.name, str(context.seed),
               json.dumps(asdict(shape))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[-1:])
        return {"first_call_us": round(float(done.stdout), 1)}
    except (OSError, RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
        return {"first_call": {"absent": str(error)[:200]}}  # the other times are valid without it


def main(words: Sequence[str]) -> None:
    from .case import AttentionCase

    device, seed, text = words
    given = json.loads(text)
    shape = Shape(**given | {name: tuple(given[name]) for name in ("packed", "keys_of")})
    context = Context(_core.Device(device), int(seed))
    clock = clock_for(context.device)
    case = AttentionCase(context, "first call", shape)
    inputs = case.make_inputs(0)
    outputs = case.make_outputs(inputs)
    print(clock.call_time(lambda: case.kernels()["best"](inputs, outputs)).call_us)


if __name__ == "__main__":
    main(sys.argv[1:])
