"""penstock.hf: transformers models whose experts Penstock computes, against transformers' own.

Needs torch and transformers, on the CPU and, where there is one, on a GPU. With --require-gpu a
missing transformers is an error.
"""

import doctest
import re
from pathlib import Path

import pytest

import penstock
import penstock.hf

torch = pytest.importorskip("torch", reason="torch is not installed here")

NAMES = ("qwen3_moe", "mixtral", "olmoe", "deepseek_v3", "gpt_oss")
FORWARD = {"use_cache": False}
WITH_INDUCTOR = ("qwen3_moe",)  # on a GPU; the others are traced only, which takes seconds


def generated(model, implementation, ids, **options):
    model.set_experts_implementation(implementation)
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12,
                          do_sample=False, **options)


@pytest.mark.parametrize("name", NAMES)
def test_as_eager(small, name, device):
    model, ids = small.build(name, device), small.prompt(device)
    wanted = small.logits(model, "eager", ids)
    got = small.logits(model, "penstock", ids)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4)
    # The comparison above shows nothing where the experts do not matter.
    assert (small.logits(model, "zeros", ids) - wanted).abs().max() > 0.1


@pytest.mark.parametrize("name", NAMES)
def test_rounds_no_worse_than_eager(small, name, device):
    """In bf16: at most twice as far from f32 as eager in bf16, and a rounding."""
    ids = small.prompt(device)
    rounded = small.build(name, device, torch.bfloat16)
    exact = small.build(name, device, torch.bfloat16).float()  # the same weights
    wanted = small.logits(exact, "eager", ids)
    own, got = (small.logits(rounded, each, ids).float() for each in ("eager", "penstock"))
    error = (own - wanted).abs().max()
    step = torch.finfo(torch.bfloat16).eps * wanted.abs().max()
    assert (got - wanted).abs().max() <= 2 * error + step
    # Teacher-forced: the next token is the same wherever rounding cannot have decided it.
    best = own.topk(2).values
    sure = best[..., 0] - best[..., 1] > 4 * error
    assert torch.equal(got.argmax(-1)[sure], own.argmax(-1)[sure])


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", NAMES)
def test_generates_the_same_tokens(small, name, cache, device):
    model, ids = small.build(name, device), small.prompt(device, tokens=7)
    wanted = generated(model, "eager", ids)
    got = generated(model, "penstock", ids, cache_implementation=cache,
                    disable_compile=name not in WITH_INDUCTOR)
    assert got.shape == (2, 19) and torch.equal(got, wanted)
    assert model.config._experts_implementation == "penstock"


@pytest.mark.parametrize("name", NAMES)
def test_compiled_whole(small, name, device):
    model, ids = small.build(name, device), small.prompt(device)
    wanted = small.logits(model, "penstock", ids)
    torch.compiler.reset()
    backend = "inductor" if device == "cuda" and name in WITH_INDUCTOR else "aot_eager"
    with torch.no_grad():
        got = torch.compile(model, fullgraph=True, backend=backend)(ids, **FORWARD).logits
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_widths_that_are_no_multiples_of_8(small, name, device):
    width = "moe_intermediate_size" if name == "qwen3_moe" else "intermediate_size"
    model = small.build(name, device, hidden_size=60, **{width: 42})
    ids = small.prompt(device)
    torch.testing.assert_close(small.logits(model, "penstock", ids),
                               small.logits(model, "eager", ids), rtol=0, atol=1e-4)


@pytest.mark.parametrize("activation", ["gelu", "gelu_pytorch_tanh", "swish", "gelu_new"])
def test_activations(small, activation, device):
    model, ids = small.build("mixtral", device, hidden_act=activation), small.prompt(device)
    torch.testing.assert_close(small.logits(model, "penstock", ids),
                               small.logits(model, "eager", ids), rtol=0, atol=1e-4)


def one_experts(small, name="mixtral", **changes):
    """The experts of a layer, and arguments for them."""
    model = small.build(name, **changes)
    model.set_experts_implementation("penstock")
    experts = model.model.layers[-1].mlp.experts
    draw = torch.Generator().manual_seed(4)
    x = torch.randn(9, model.config.hidden_size, generator=draw)
    ids = torch.rand(9, experts.num_experts, generator=draw).argsort(1)[:, :2]
    return experts, (x, ids.contiguous(), torch.rand(9, 2, generator=draw))


def test_ids_of_experts_elsewhere_are_skipped(small):
    """With expert parallelism, an id of num_experts or more is another process's."""
    experts, (x, ids, weights) = one_experts(small)
    elsewhere = torch.rand(ids.shape, generator=torch.Generator().manual_seed(5)) < 0.4
    with torch.no_grad():
        got = experts(x, ids.masked_fill(elsewhere, experts.num_experts),
                      weights.masked_fill(elsewhere, 0))
        experts.config._experts_implementation = "eager"
        wanted = experts(x, ids, weights.masked_fill(elsewhere, 0))
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4)


def test_other_types_of_the_input_and_the_weights(small):
    experts, (x, ids, weights) = one_experts(small)
    experts.bfloat16()
    with torch.no_grad():
        wanted = experts(x.bfloat16(), ids, weights)
        got = experts(x, ids, weights.bfloat16())  # as under autocast
    assert wanted.dtype == torch.bfloat16 and got.dtype == torch.float32
    torch.testing.assert_close(got, wanted.float(), rtol=2**-6, atol=2**-6)


class TestRefuses:
    def check(self, experts, arguments, says):
        """Refused, and the module computes as before with another implementation."""
        with torch.no_grad():
            with pytest.raises(penstock.Unsupported, match=says):
                experts(*arguments)
            experts.config._experts_implementation = "eager"
            assert experts(*arguments).isfinite().all()

    @pytest.mark.parametrize("name", NAMES)
    def test_gradients(self, small, name):
        model = small.build(name)
        model.set_experts_implementation("penstock")
        with pytest.raises(penstock.Unsupported, match="requires a gradient.*no_grad"):
            model(small.prompt(), **FORWARD)

    def test_a_gate_of_the_class(self, small, monkeypatch):
        experts, arguments = one_experts(small)
        monkeypatch.setattr(type(experts), "_apply_gate", lambda self, both: both.chunk(2, -1)[0])
        self.check(experts, arguments, "MixtralExperts has a gate of its own")

    def test_a_gate_of_the_module(self, small):
        experts, arguments = one_experts(small)
        experts._apply_gate = lambda both: both.chunk(2, -1)[0]
        self.check(experts, arguments, "MixtralExperts has a gate of its own")

    def test_an_activation(self, small):
        experts, arguments = one_experts(small, hidden_act="relu")
        self.check(experts, arguments, "has the activation ReLU, expected silu")

    def test_experts_without_a_gate(self, small):
        experts, arguments = one_experts(small)
        experts.has_gate = False
        self.check(experts, arguments, "experts without a gate")

    def test_quantised_weights(self, small):
        from transformers.integrations.finegrained_fp8 import ALL_FP8_EXPERTS_FUNCTIONS

        experts, arguments = one_experts(small)
        function = ALL_FP8_EXPERTS_FUNCTIONS.get_interface("penstock", None)
        for name in ("gate_up_proj", "down_proj"):
            quantised = getattr(experts, name).detach().to(torch.float8_e4m3fn)
            setattr(experts, name, torch.nn.Parameter(quantised, requires_grad=False))
        with pytest.raises(penstock.Unsupported, match="float8_e4m3fn; .*dequantize=True"):
            function(experts, *arguments)


def test_the_page(small):
    page = (Path(__file__).resolve().parents[2] / "docs/transformers.md").read_text()
    blocks = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if ">>>" in each]
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, "transformers.md", None, 0)
    said = []
    assert len(test.examples) > 10
    assert doctest.DocTestRunner().run(test, out=said.append).failed == 0, "".join(said)


def test_needs_transformers_only_when_it_registers(python):
    python("""
        import sys
        import penstock.hf
        assert "torch" not in sys.modules and "transformers" not in sys.modules
        sys.modules["transformers"] = None
        try:
            penstock.hf.register()
        except ImportError as error:
            assert "expected transformers 5" in str(error), error
        else:
            raise AssertionError
    """)
