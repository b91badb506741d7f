"""prefetch="gate": the router of the next layer, applied to the hidden states of the current one, says
which experts are copied beforehand. On the CPU and, where there is one, on a GPU.

On the CPU, compressed experts are copied to a cache as on a GPU.
"""

import time

import pytest

import penstock
import penstock.hf
from penstock import Unsupported

torch = pytest.importorskip("torch", reason="torch is not installed here")

NAMES = ("qwen3_moe", "mixtral", "olmoe", "deepseek_v3", "gpt_oss", "qwen2_moe", "qwen3_next",
         "deepseek_v2", "glm4_moe")
LAYERS = {"num_hidden_layers": 4}


def offloaded(small, name, device, prefetch, **options):
    model = small.build(name, dtype=torch.bfloat16, **LAYERS)
    return penstock.hf.offload(model, gpu_memory="1GiB", device=device, prefetch=prefetch,
                               progress=False, **{"compress": True, **options})


def experts_of(model):
    return [module for module in model.modules() if hasattr(module, "_streamed")]


def logits(model, ids, **options):
    with torch.no_grad():
        return model(ids, use_cache=False, **options).logits


@pytest.fixture
def announced(monkeypatch):
    """The layers and ids of all calls of prefetch()."""
    calls, real = [], penstock.StreamedExperts.prefetch

    def prefetch(self, layer, ids):
        calls.append((layer, ids.clone()))
        real(self, layer, ids)

    monkeypatch.setattr(penstock.StreamedExperts, "prefetch", prefetch)
    return calls


@pytest.mark.parametrize("name", NAMES)
def test_announces_what_the_next_router_chooses(small, name, device, announced):
    model, ids = offloaded(small, name, device, "gate"), small.prompt(device, 1, 1)
    plain = offloaded(small, name, device, "none")
    seen = []
    for module in experts_of(model):
        module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    assert torch.equal(logits(model, ids), logits(plain, ids))
    layers = len(experts_of(model))
    assert layers >= 3 and [layer for layer, _ in announced] == list(range(1, layers))
    routers = [parent for parent in model.modules() if hasattr(getattr(parent, "experts", None), "layer")]
    for number, (layer, chosen) in enumerate(announced):
        router = getattr(routers[layer], "router" if name == "gpt_oss" else "gate")
        with torch.no_grad():
            wanted = router(seen[number].reshape(1, -1))[-1]
        assert torch.equal(chosen, wanted) and chosen.shape[0] == 1


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "deepseek_v3"])
def test_the_same_bits(small, name, device):
    """Whatever the tokens, prompts included, and also if experts are evicted."""
    plain = offloaded(small, name, device, "none")
    model = offloaded(small, name, device, "gate")
    for batch, tokens in ((1, 1), (2, 1), (2, 21), (1, 2), (1, 1)):
        ids = small.prompt(device, batch, tokens)
        assert torch.equal(logits(model, ids), logits(plain, ids))
    options = {"max_new_tokens": 8, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    assert torch.equal(model.generate(ids, **options), plain.generate(ids, **options))


def test_copies_experts_before_they_are_needed(small, device):
    model, ids = offloaded(small, "qwen3_moe", device, "gate"), small.prompt(device, 1, 1)
    experts = model.streamed_experts
    first = experts_of(model)[0]
    end = time.monotonic() + 20
    while not experts.statistics.prefetched and time.monotonic() < end:
        experts.clear()
        with torch.no_grad():
            first(torch.randn(1, 64, device=device, dtype=torch.bfloat16), torch.tensor([[1, 2, 3]]).to(device),
                  torch.full((1, 3), 0.3, device=device))
        time.sleep(0.01)
    assert experts.statistics.prefetched
    assert logits(model, ids).isfinite().all()


def test_not_for_many_tokens(small, device, announced):
    """Nearly all experts are needed then, and copied in order."""
    model = offloaded(small, "qwen3_moe", device, "gate")
    logits(model, small.prompt(device, 2, 21))
    assert announced == []


def test_not_where_nothing_is_copied(small, announced):
    model = offloaded(small, "mixtral", "cpu", "gate", compress=False)
    logits(model, small.prompt(batch=1, tokens=1))
    assert announced == []


def test_what_transformers_collects(small, device):
    """Predictions are not among the logits of the routers."""
    model, ids = offloaded(small, "qwen3_moe", device, "gate"), small.prompt(device, 1, 1)
    with torch.no_grad():
        out = model(ids, output_router_logits=True, use_cache=False)
    assert len(out.router_logits) == 4


def test_with_gradients_enabled(small):
    """The prediction itself needs none; experts refuse tokens that do."""
    model = offloaded(small, "mixtral", "cpu", "gate")
    with pytest.raises(Unsupported, match="requires a gradient"):
        model(small.prompt(batch=1, tokens=1), use_cache=False)
    assert logits(model, small.prompt(batch=1, tokens=1)).isfinite().all()


def test_loaded_from_a_checkpoint(small, device, tmp_path, announced):
    small.build("olmoe", dtype=torch.bfloat16).save_pretrained(tmp_path)
    options = {"gpu_memory": "1GiB", "device": device, "progress": False, "compress": True}
    model = penstock.hf.load(tmp_path, prefetch="gate", **options)
    ids = small.prompt(device, 1, 1)
    assert torch.equal(logits(model, ids), logits(penstock.hf.load(tmp_path, **options), ids))
    assert [layer for layer, _ in announced] == [1]


class TestRefuses:
    def test_models_of_an_unknown_type(self, small):
        import transformers

        config = transformers.PhimoeConfig(**small.SIZES, intermediate_size=48, num_local_experts=4)
        model = transformers.PhimoeForCausalLM(config).eval()
        with pytest.raises(Unsupported, match="of type deepseek_v2, .* for prefetch='gate', .* given phimoe"):
            penstock.hf.offload(model, device="cpu", prefetch="gate", progress=False)
        assert not hasattr(model, "streamed_experts")
        penstock.hf.offload(model, device="cpu", prefetch="previous", progress=False)

    def test_models_without_the_router(self, small):
        model = small.build("mixtral")
        model.model.layers[1].mlp.gate = None
        with pytest.raises(Unsupported, match=r"expected a router model.layers.1.mlp.gate for prefetch"):
            penstock.hf.offload(model, device="cpu", prefetch="gate", progress=False)


def test_the_table():
    """It has all types of models that load() takes."""
    pytest.importorskip("transformers", reason="transformers is not installed here")
    from penstock import _hf_names, _hf_routers

    assert set(_hf_routers.ROUTERS) == set(_hf_names.NAMINGS) == set(NAMES)
