"""bench/moe_transformers.py: what its checks of the experts and of forward passes find."""

import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytest.importorskip("transformers", reason="transformers is not installed here")

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def program():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCH)
        import moe_transformers
    moe_transformers.penstock.hf.register()
    return moe_transformers


@pytest.fixture(scope="module")
def models(program):
    """A small model, and the same in f32."""
    with torch.inference_mode():
        model = program.build({**program.SHAPES, **program.SMALL}, "cpu")
        return model, copy.deepcopy(model).float()


def checks(program, models, shape):
    with torch.inference_mode():
        ids, cache = program.prompt_of(models[0], *shape)
        inputs = program.inputs_of(models[0], program.forward_of(models[0], ids, cache), "eager")
        return (program.check_of_experts(*models, inputs[0][1]),
                program.check_of_forward(*models, ids, cache, inputs))


@pytest.mark.parametrize("shape", [(1, 64, 0), (1, 1, 16), (8, 1, 16)])
def test_what_is_right_passes(program, models, shape):
    for check in checks(program, models, shape):
        assert check["correct"] and 0 < check["max_error"] <= check["tolerance"] < 0.5


@pytest.mark.parametrize("shape", [(1, 64, 0), (1, 1, 16), (8, 1, 16)])
def test_a_wrong_layer_is_found_in_the_forward_pass(program, models, shape, monkeypatch):
    """The check of the experts looks at the first layer only."""
    mapping = program.ExpertsInterface._global_mapping
    experts, last = mapping["penstock"], models[0].model.layers[-1].mlp.experts

    def wrong(module, *arguments):
        return experts(module, *arguments) * (1.25 if module is last else 1)

    monkeypatch.setitem(mapping, "penstock", wrong)
    of_experts, of_forward = checks(program, models, shape)
    assert of_experts["correct"] and not of_forward["correct"]


def test_tokens_keep_their_experts(program, models):
    model, exact = models
    with torch.inference_mode():
        ids, cache = program.prompt_of(model, 4, 8, 0)
        forward = program.forward_of(model, ids, cache)
        inputs = program.inputs_of(model, forward, "eager")
        wanted = program.logits_of(model, "eager", forward, inputs)
        assert torch.equal(wanted, forward())
        others = [(module, (x, ids.flip(0), weights)) for module, (x, ids, weights) in inputs]
        assert not torch.equal(program.logits_of(model, "eager", forward, others), wanted)
