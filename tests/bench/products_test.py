"""The benchmark of gemm: its sizes, its check, and cuBLASLt's algorithms."""

import ctypes
import os
import types
import warnings

import pytest

from penstock.bench import BenchError
from penstock.bench._clock import CpuClock
from penstock.bench._correctness import check
from penstock.bench.operators import gemm as operator
from penstock.bench.products import cublas_lt, torch_peer
from penstock.bench.products.cublas_lt import CublasLt, HeuristicResult
from penstock.bench.products.gemm_case import GemmCase, Size


def test_the_cases_are_those_that_are_listed():
    assert [name for name in operator.SIZES if name[0].isdigit()] == [
        "2048x2048x2048", "4096x4096x4096", "8192x8192x8192", "16384x16384x16384",
        "16384x1536x2048", "16384x2048x768", "4096x14336x4096", "8192x8192x1024", "2048x2048x512",
        "1000x1000x1000", "776x4104x1032", "3072x5120x1280", "131072x512x512", "512x7168x2048",
        "64x8192x8192", "256x4096x14336"]
    others = [size for name, size in operator.SIZES.items() if not name[0].isdigit()]
    assert [size.dtype for size in others] == ["f16", "bf16"]
    assert others[1].n % 8 and others[1].k % 8  # no tensor map describes these


def test_it_is_right(bench):
    code, out, err = bench("gemm", "--mode", "correctness", "--device", "cpu", "--quick")
    assert code == 0, err
    assert out.count(" right ") == 2 * len(operator.QUICK)


def test_bytes_and_operations_are_counted(context):
    case = GemmCase(context, "it", Size(10, 20, 30))
    assert case.params == {"m": 10, "n": 20, "k": 30, "dtype": "f16"}
    assert case.bytes == 2 * (10 * 30 + 20 * 30 + 10 * 20) and case.flop == 2 * 10 * 20 * 30
    assert case.roof_of_parts({"host_copy": 1e9}, {}) == pytest.approx(case.bytes * 1e-3)
    assert list(case.kernels()) == ["best"] and case.roof_parts() == {}


@pytest.mark.parametrize("wrong", [
    lambda a, b, out: out.__setitem__((3, 5), 0),
    lambda a, b, out: out.__imul__(1.002),
    lambda a, b, out: out.__isub__(a[:, :1] * b[:, 0]),  # the first product of every sum is missing
])
def test_what_is_wrong_is_found(context, wrong):
    case = GemmCase(context, "it", Size(40, 50, 60))

    def broken(inputs, out):
        case.kernels()["best"](inputs, out)
        wrong(*inputs, out)

    verdicts = check(case, {"best": case.kernels()["best"], "broken": broken}, CpuClock())
    assert verdicts["best"].right and not verdicts["broken"].right


class Library:
    """cuBLASLt as far as the benchmark calls it, with three algorithms, of which one fails."""

    def __init__(self, known, algorithms=3):
        self.known = {each.data_ptr(): each for each in known}
        self.algorithms, self.layouts, self.calls, self.ran = algorithms, [], [], []

    def __getattr__(self, name):
        if not name.startswith("cublasLt"):
            raise AttributeError(name)

        def called(*arguments):
            self.calls.append(name)
            if name.endswith("Create"):
                arguments[0]._obj.value = len(self.calls)
            return 0

        return called

    def cublasLtMatrixLayoutCreate(self, made, dtype, rows, columns, leading):
        self.layouts.append((dtype.value, rows.value, columns.value, leading.value))
        made._obj.value = len(self.layouts)
        return 0

    def cublasLtMatmulPreferenceSetAttribute(self, preference, attribute, value, size):
        self.workspace = attribute.value, value._obj.value, size.value
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments):
        results, count = arguments[8], arguments[9]._obj
        for number in range(self.algorithms):
            results[number].algorithm[0] = number
        count.value = self.algorithms
        return 0

    def cublasLtMatmul(self, *arguments):
        number = arguments[12]._obj[0]
        self.ran.append(number)
        if number == 2:
            return 15  # CUBLAS_STATUS_NOT_SUPPORTED
        b, a, out = (self.known[arguments[place].value] for place in (3, 5, 10))
        out.copy_(a @ b.t() + number)
        return 0


@pytest.fixture
def tensors(monkeypatch, torch):
    monkeypatch.setattr(torch.cuda, "current_stream",
                        lambda device=None: types.SimpleNamespace(cuda_stream=0))
    a, b = torch.arange(6.0).reshape(2, 3), torch.ones(4, 3)
    return (a, b), torch.empty(2, 4)


def test_results_of_the_heuristic_have_the_librarys_layout():
    assert ctypes.sizeof(HeuristicResult) == 96 and HeuristicResult.state.offset == 72


def test_every_algorithm_is_a_way(tensors):
    inputs, out = tensors
    library = Library([*inputs, out])
    ways = cublas_lt.ways(CublasLt(library), 2, 4, 3, "bf16")
    assert list(ways) == ["algorithm 0", "algorithm 1", "algorithm 2"]
    assert library.layouts == [(14, 3, 2, 3), (14, 3, 4, 3), (14, 4, 2, 4)]
    assert library.workspace == (1, 32 << 20, 8)
    ways["algorithm 1"](inputs, out)
    assert out.tolist() == [[4] * 4, [13] * 4]
    with pytest.raises(BenchError, match="cublasLtMatmul: status 15"):
        ways["algorithm 2"](inputs, out)
    with pytest.raises(BenchError, match="no algorithm for 2 x 4 x 3"):
        cublas_lt.ways(CublasLt(Library([], 0)), 2, 4, 3, "f16")


def test_torch_is_told_to_call_cublaslt_and_to_fail_otherwise(monkeypatch, torch):
    for name in torch_peer.SETTINGS:
        monkeypatch.setenv(name, "1")
    told = []
    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", told.append)
    with warnings.catch_warnings():
        torch_peer.prefer_cublas_lt()
        assert told == ["cublaslt"] and os.environ["CUBLASLT_WORKSPACE_SIZE"] == "32768"
        with pytest.raises(UserWarning):
            warnings.warn("Will attempt to recover by calling cublas instead.", stacklevel=1)
