"""The exceptions of this package. Each is also a matching built-in exception."""


class Error(Exception):
    """The base class of all exceptions of this package."""

    def __init_subclass__(cls) -> None:
        cls.__module__ = "penstock"  # where users import it from


class InvalidArgument(Error, ValueError):
    """An argument is invalid. The message names the argument, what was expected and what was given.

    It is raised before the call has any effect.

    >>> import penstock
    >>> try:
    ...     penstock.Pipeline(depth=0)
    ... except ValueError as error:
    ...     print(error)
    depth: expected between 1 and 65536, given 0
    """

    def __init__(self, argument: str, expected: str, given: str) -> None:
        super().__init__(argument, expected, given)
        self.argument = argument
        self.expected = expected
        self.given = given

    def __str__(self) -> str:
        return f"{self.argument}: expected {self.expected}, given {self.given}"


class OutOfMemory(Error, MemoryError):
    """Host, page-locked or device memory ran out. The failed request allocated nothing."""


class Unsupported(Error, NotImplementedError):
    """This machine, build or process cannot do what was asked. The message says what to do instead."""


class DeviceError(Error, RuntimeError):
    """A device call failed, or work enqueued on the device failed. `code` is the CUDA error code."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class DeviceLost(DeviceError):
    """The device failed and cannot be used again in this process."""


class PipelineError(Error, RuntimeError):
    """A stage failed in :meth:`Pipeline.run`. ``__cause__`` is the exception that the stage raised.

    >>> import penstock
    >>> def work(item):
    ...     if item.index == 2:
    ...         raise KeyError("lost")
    >>> pipeline = penstock.Pipeline("cpu")
    >>> stage = pipeline.host_stage("work", work)
    >>> try:
    ...     pipeline.run(5)
    ... except penstock.PipelineError as error:
    ...     print(error.stage, error.item, repr(error.__cause__))
    work 2 KeyError('lost')
    """

    def __init__(self, message: str, stage: str, item: int) -> None:
        super().__init__(message, stage, item)
        self.stage = stage
        self.item = item

    def __str__(self) -> str:
        return str(self.args[0])


class ExpertsClosed(Error, RuntimeError):
    """The :class:`StreamedExperts` were closed before the call."""
