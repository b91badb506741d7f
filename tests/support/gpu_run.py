"""Options of pytest for the runs on a machine with a GPU (scripts/gpu_test.sh), and the marker of tests
that need torch."""

import pytest

import penstock

# The reasons of skips that --require-gpu accepts. A test that is skipped for another reason fails.
ACCEPTED = (
    "older versions of transformers leave the experts in fp8",  # the test is about newer versions
    "the kernel needs compute capability 9.0",  # other GPUs do not have it
)


def pytest_addoption(parser):
    parser.addoption("--require-gpu", action="store_true",
                     help="fail, instead of skipping tests, if there is no GPU or no torch for it, or if a "
                          "package that a test needs is missing")
    parser.addoption("--shard", metavar="I/N", default="0/1", type=_shard,
                     help="run every Nth of the selected tests, from test I on")


def _shard(text):
    first, count = (int(number) for number in text.split("/"))
    if not 0 <= first < count:
        raise ValueError(f"--shard: expected I/N with 0 <= I < N, got {text}")
    return first, count


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a GPU")
    config.addinivalue_line("markers", "torch: needs torch (set by tests/support/gpu_run.py)")
    if not config.getoption("--require-gpu"):
        return
    if reason := penstock.Device.why_no_gpu():
        raise pytest.UsageError(f"--require-gpu: expected a GPU: {reason}")
    try:
        import torch
    except ImportError as error:
        raise pytest.UsageError(f"--require-gpu: expected torch: {error}") from None
    if not torch.cuda.is_available():
        raise pytest.UsageError(f"--require-gpu: torch {torch.__version__} cannot use the GPU")


@pytest.hookimpl(tryfirst=True)  # before -m selects by markers
def pytest_collection_modifyitems(items):
    for item in items:
        if "torch" in item.fixturenames or hasattr(item.module, "torch"):
            item.add_marker("torch")


@pytest.hookimpl(specname="pytest_collection_modifyitems", trylast=True)  # of the selected ones
def pytest_collection_take_shard(config, items):
    first, count = config.getoption("--shard")
    left_out = [item for at, item in enumerate(items) if at % count != first]
    items[:] = items[first::count]
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def fail_skip(report):
    """Turns a skip into a failure, unless its reason is accepted."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    _, _, said = report.longrepr
    reason = said.removeprefix("Skipped: ")
    if reason not in ACCEPTED:
        report.outcome = "failed"
        report.longrepr = f"--require-gpu: skipped: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if item.config.getoption("--require-gpu"):
        fail_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if collector.config.getoption("--require-gpu"):
        fail_skip(report)
    return report


def pytest_sessionfinish(session):
    """A run in which no test passed shows nothing."""
    config = session.config
    passed = config.pluginmanager.get_plugin("terminalreporter").stats.get("passed", [])
    if config.getoption("--require-gpu") and not config.getoption("--collect-only") and not passed:
        print("\n--require-gpu: expected at least one test to pass, got none")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed here")
