"""The command line that repeats one case in a new process."""

from ._operator import Context, Operator


def rerun_command(operator: Operator, context: Context, mode: str, case: str,
                  kernel: str | None = None) -> list[str]:
    """The arguments of `python` that repeat `case`, with the same device, seed and sizes."""
    return ["-m", "penstock.bench", operator.name, "--mode", mode, "--case", case,
            *(["--kernel", kernel] if kernel else []), "--device", context.device.name, "--seed",
            str(context.seed), *(["--quick"] if context.quick else [])]
