"""resample: interpolates rows sampled at irregular times at given target times."""

from .._operator import Case, Context, Operator
from ..resampling.batch_case import BatchCase, Shape
from ..resampling.sensors_case import SensorsCase

SHAPES = {
    "small": Shape(32, 500, 256, 256),
    "medium": Shape(256, 500, 256, 256),
    "narrow": Shape(256, 500, 250, 32),
    "large": Shape(1024, 500, 256, 256),
    "long": Shape(64, 4096, 1024, 128),
    "tiny": Shape(32, 50, 32, 16),
    "f32": Shape(512, 1000, 500, 64, "f32"),
    "joints": Shape(2048, 100, 50, 14, "f32"),
    "very-long": Shape(16, 20000, 10000, 512),
    "ragged": Shape(256, 1000, 256, 256, ragged=True),
}
ON_CPU = {
    "f32": Shape(64, 1000, 500, 64, "f32"),
    "wide": Shape(64, 500, 256, 256, "f32"),
    "joints": Shape(512, 100, 50, 14, "f32"),
    "ragged": Shape(64, 1000, 256, 128, "f32", ragged=True),
}
QUICK = {"small": Shape(4, 500, 256, 64, "f32"), "ragged": Shape(6, 200, 33, 7, "f32", True)}

# Episodes and seconds of four sensors: more than 100 MB, and less than 2 MB.
SENSORS = {"sensors": (256, 10), "sensors, small": (4, 10)}
SENSORS_ON_CPU = {"sensors": (32, 10), "sensors, small": (4, 10)}
SENSORS_QUICK = {"sensors": (2, 1)}


class Resample(Operator):
    name = "resample"
    summary = "rows sampled at irregular times, interpolated linearly at given target times"

    def cases(self, context: Context) -> list[Case]:
        on_cpu = context.device.kind == "cpu"
        shapes = QUICK if context.quick else ON_CPU if on_cpu else SHAPES
        sensors = SENSORS_QUICK if context.quick else SENSORS_ON_CPU if on_cpu else SENSORS
        return [*(BatchCase(context, name, shape, even)
                  for name, shape in shapes.items() for even in (True, False)),
                *(SensorsCase(context, name, *size) for name, size in sensors.items())]


operator = Resample()
