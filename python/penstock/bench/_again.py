"""The words that run one case again, in a process of its own."""

from ._operator import Context, Operator


def again(operator: Operator, context: Context, mode: str, case: str,
          kernel: str | None = None) -> list[str]:
    """Those behind `python`, with the same numbers."""
    return ["-m", "penstock.bench", operator.name, "--mode", mode, "--case", case,
            *(["--kernel", kernel] if kernel else []), "--device", context.device.name, "--seed",
            str(context.seed), *(["--quick"] if context.quick else [])]
