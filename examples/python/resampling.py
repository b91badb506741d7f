import numpy
import penstock

# One episode of a robot: joint angles at irregular timestamps, wanted at 50 Hz.
times = numpy.cumsum(numpy.random.default_rng(1).uniform(0.005, 0.05, size=400))
angles = numpy.sin(times)[:, None] * numpy.linspace(0.1, 1.0, 7)  # (samples, joints)
target_times = numpy.arange(times[0], times[-1], 1 / 50)
resampled = penstock.resample(angles, times, target_times)  # (targets, joints)

expected = numpy.sin(target_times)[:, None] * numpy.linspace(0.1, 1.0, 7)
assert numpy.allclose(resampled, expected, atol=1e-3)
