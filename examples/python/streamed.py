import os
import tempfile

import numpy
import penstock
from penstock.transform import FileArray, Streamed

count = 10_000_000
with tempfile.TemporaryDirectory() as folder:
    update = numpy.random.default_rng(1).normal(size=count).astype("f4")  # in memory
    weights = FileArray(os.path.join(folder, "weights.f32"), "f32")  # in a file
    penstock.write_file(weights.path, numpy.ones(count, "f4"))

    # Computes on the first GPU, else on the CPU, within these limits of memory.
    streamed = Streamed(device_bytes=256 << 20, pinned_bytes=256 << 20)
    merged = os.path.join(folder, "merged.f32")
    report = streamed.axpby(weights, update, b=0.1, out=merged)
    streamed.cast(FileArray(merged, "f32"), "bf16", out=os.path.join(folder, "merged.bf16"))

    print(f"{report.items} pieces in {report.seconds * 1e3:.1f} ms on {streamed.device.name}")
    result = penstock.read_file(merged, dtype="f4")
    assert numpy.allclose(result, 1 + numpy.float32(0.1) * update, atol=1e-6)
