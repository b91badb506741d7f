"""Fixtures of the tests with small transformers models. With --require-gpu a missing transformers is an
error."""

import pytest

import penstock.hf

torch = pytest.importorskip("torch", reason="torch is not installed here")


@pytest.fixture(scope="module")
def small(request):
    if not request.config.getoption("--require-gpu"):
        pytest.importorskip("transformers", reason="transformers is not installed here")
    import hf_support

    penstock.hf.register()
    return hf_support


@pytest.fixture(params=("cpu", pytest.param("cuda", marks=pytest.mark.gpu)))
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU for torch")
    return request.param
