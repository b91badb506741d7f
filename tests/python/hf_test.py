"""penstock.hf: transformers models whose experts Penstock computes, against transformers' own.

Needs torch and transformers, on the CPU and, where there is one, on a GPU. With --require-gpu a
missing transformers is an error.
"""

import copy
import doctest
import json
import re
from pathlib import Path

import pytest

import penstock
import penstock.hf

torch = pytest.importorskip("torch", reason="torch is not installed here")

NAMES = ("qwen3_moe", "mixtral", "olmoe", "deepseek_v3", "gpt_oss")
FORWARD = {"use_cache": False}
WITH_INDUCTOR = ("qwen3_moe",)  # on a GPU; the others are traced only, which takes seconds
FP8 = (r"{}: gate_up_proj: expected expert weights in bf16, f16 or f32, given torch.float8_e4m3fn; load the model "
       r"with dequantised weights, by quantization_config=FineGrainedFP8Config\(dequantize=True\)")


def generated(model, implementation, ids, **options):
    model.set_experts_implementation(implementation)
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12,
                          do_sample=False, **options)


@pytest.fixture
def calls(small, monkeypatch):
    """The modules for which transformers has called Penstock's experts."""
    from transformers.integrations.moe import ExpertsInterface

    mapping, calls = ExpertsInterface._global_mapping, []
    experts = mapping["penstock"]

    def counted(module, *arguments):
        calls.append(module)
        return experts(module, *arguments)

    monkeypatch.setitem(mapping, "penstock", counted)
    return calls


@pytest.mark.parametrize("name", NAMES)
def test_as_eager(small, name, device, calls, tmp_path):
    """After transformers' own test of its implementations against eager; also after saving and loading."""
    from transformers import AutoModelForCausalLM

    assert torch.get_float32_matmul_precision() == "highest", "TF32 would hide errors"
    model, ids = small.build(name, device), small.prompt(device)
    wanted = small.logits(model, "eager", ids)
    assert not calls
    got = small.logits(model, "penstock", ids)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4)
    experts = [each for each in model.modules() if hasattr(each, "is_transposed")]
    assert calls == experts and experts[0].down_proj.device.type == device
    # The comparison above shows nothing where the experts do not matter.
    assert (small.logits(model, "zeros", ids) - wanted).abs().max() > 0.1

    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, experts_implementation="penstock").to(device)
    assert loaded.config._experts_implementation == "penstock"
    calls.clear()
    with torch.no_grad():
        got = loaded(ids, **FORWARD).logits
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4)
    assert len(calls) == len(experts) > 0


def with_all_chosen(name):
    """Every token has all experts. Otherwise rounding may change which are chosen, and with that the
    result by much more than a rounding."""
    return {"num_experts_per_tok": 6 if name == "mixtral" else 8, "topk_group": 2}


@pytest.mark.parametrize("chosen", ["some", "all"])
@pytest.mark.parametrize("name", NAMES)
def test_rounds_no_worse_than_eager(small, name, chosen, device):
    """In bf16: at most twice as far from f32 as eager in bf16, and a rounding."""
    ids, changes = small.prompt(device), with_all_chosen(name) if chosen == "all" else {}
    rounded = small.build(name, device, torch.bfloat16, **changes)
    exact = small.build(name, device, torch.bfloat16, **changes).float()  # the same weights
    wanted = small.logits(exact, "eager", ids)
    own, got = (small.logits(rounded, each, ids).float() for each in ("eager", "penstock"))
    check_rounding(got, own, wanted)
    if chosen == "all":
        check_best_tokens(got, own, wanted)


def check_rounding(got, own, wanted):
    error = (own - wanted).abs().max()
    assert (got - wanted).abs().max() <= 2 * error + torch.finfo(torch.bfloat16).eps * wanted.abs().max()


def check_best_tokens(got, own, wanted):
    """The next token is the same wherever rounding cannot have decided it; such places are many."""
    first, second = own.topk(2).values.unbind(-1)
    sure = first - second > 4 * (own - wanted).abs().amax(-1)
    assert sure.sum() >= sure.numel() / 3
    assert torch.equal(got.argmax(-1)[sure], own.argmax(-1)[sure])


def logits_and_choices(small, model, implementation, ids):
    """The logits, and the experts of every layer in ascending order: (B, T, layers, K)."""
    choices = []

    def record(_, given):
        choices.append(given[1].sort(-1).values.view(*ids.shape, 1, -1))

    experts = [each for each in model.modules() if hasattr(each, "is_transposed")]
    hooks = [each.register_forward_pre_hook(record) for each in experts]
    logits = small.logits(model, implementation, ids).float()
    for each in hooks:
        each.remove()
    assert len(choices) == len(experts) > 0
    return logits, torch.cat(choices, 2)


@pytest.mark.parametrize("name", NAMES)
def test_next_tokens_are_those_of_eager(small, name, device):
    """In bf16 with some experts per token: wherever a token and those before it have the same experts."""
    ids = small.prompt(device, batch=32, tokens=6)
    rounded = small.build(name, device, torch.bfloat16)
    exact = small.build(name, device, torch.bfloat16).float()  # the same weights
    (wanted, choices), (own, owns), (got, gots) = (
        logits_and_choices(small, *each, ids)
        for each in ((exact, "eager"), (rounded, "eager"), (rounded, "penstock")))
    same = ((owns == choices) & (gots == choices)).all(-1).all(-1).cumprod(1).bool()
    assert same.sum() >= same.numel() / 3
    check_rounding(got[same], own[same], wanted[same])
    check_best_tokens(got[same], own[same], wanted[same])


def forced(model, implementation, ids, tokens=None, **options):
    """The tokens that `generate` returns, and the logits of every step: (B, tokens, vocabulary). With
    `tokens`, these are generated, whatever the logits say."""
    steps = []

    def record(_, scores):
        steps.append(scores.float())
        if tokens is None:
            return scores
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, len(steps) - 1, None], 0)

    sequences = generated(model, implementation, ids, logits_processor=[record], **options)
    return sequences[:, ids.shape[1]:], torch.stack(steps, 1)


@pytest.mark.parametrize("name", NAMES)
def test_decodes_no_worse_than_eager(small, name, device):
    """In bf16, token by token, with the tokens that eager chose."""
    ids, changes = small.prompt(device, tokens=7), with_all_chosen(name)
    model = small.build(name, device, torch.bfloat16, **changes)
    exact = small.build(name, device, torch.bfloat16, **changes).float()  # the same weights
    tokens, own = forced(model, "eager", ids)
    _, wanted = forced(exact, "eager", ids, tokens)
    for cache in ("dynamic", "static"):
        taken, got = forced(model, "penstock", ids, tokens, cache_implementation=cache, disable_compile=True)
        assert torch.equal(taken, tokens)
        check_rounding(got, own, wanted)
        check_best_tokens(got, own, wanted)


def test_mxfp4_that_is_dequantised_at_loading(small, tmp_path):
    """A checkpoint as those of gpt-oss: two values of four bits in a byte, and a scale of 32 of them."""
    import transformers
    from safetensors.torch import load_file, save_file

    small.build("gpt_oss", hidden_size=64, intermediate_size=32).save_pretrained(tmp_path)
    tensors, draw = load_file(tmp_path / "model.safetensors"), torch.Generator().manual_seed(6)
    for name in [each for each in tensors if each.endswith(("gate_up_proj", "down_proj"))]:
        count, columns, rows = tensors.pop(name).shape
        tensors[f"{name}_blocks"] = torch.randint(256, (count, rows, columns // 32, 16), generator=draw,
                                                  dtype=torch.uint8)
        tensors[f"{name}_scales"] = torch.randint(123, 126, (count, rows, columns // 32), generator=draw,
                                                  dtype=torch.uint8)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.bfloat16, quantization_config=transformers.Mxfp4Config(dequantize=True))
    penstock.hf.use(model)
    experts = model.model.layers[0].mlp.experts
    name = "model.layers.0.mlp.experts.gate_up_proj"
    values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])
    blocks, scales = tensors[f"{name}_blocks"].int(), tensors[f"{name}_scales"].int()
    stored = torch.stack((values[blocks % 16], values[blocks // 16]), -1).flatten(-2)
    stored = torch.ldexp(stored, scales[..., None] - 127).flatten(2)
    assert torch.equal(experts.gate_up_proj.float(), stored.mT)
    check_as_eager(small, model)


def check_as_eager(small, model):
    exact = copy.deepcopy(model).float()
    ids = small.prompt()
    got = small.logits(model, "penstock", ids).float()
    own, wanted = (small.logits(each, "eager", ids).float() for each in (model, exact))
    check_rounding(got, own, wanted)


def save_fp8(small, folder, **changes):
    """A checkpoint as those of DeepSeek-V3, in several files: values of eight bits, and a scale of every square
    block. Returns what they mean."""
    from safetensors.torch import load_file, save_file

    side, largest = 8, torch.finfo(torch.float8_e4m3fn).max
    small.build("deepseek_v3", **changes).save_pretrained(folder, max_shard_size="100KB")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    tensors = {name: each for file in files for name, each in load_file(folder / file).items()}
    stored = {}
    for name in [each for each in tensors if "_proj" in each and each.endswith(".weight")]:
        rows, columns = tensors[name].shape
        whole = torch.nn.functional.pad(tensors[name], (0, -columns % side, 0, -rows % side))
        blocks = whole.view(whole.shape[0] // side, side, whole.shape[1] // side, side)
        scales = blocks.abs().amax((1, 3), keepdim=True) / largest
        values = (blocks / scales).to(torch.float8_e4m3fn)
        stored[name] = (values.float() * scales).view_as(whole)[:rows, :columns]
        tensors[name] = values.view_as(whole)[:rows, :columns].contiguous()
        tensors[f"{name}_scale_inv"] = scales[:, 0, :, 0].contiguous()
    names = sorted(tensors)  # so that some scales are in another file than their values
    for number, file in enumerate(files):
        mine = names[number * len(names) // len(files):(number + 1) * len(names) // len(files)]
        save_file({name: tensors[name] for name in mine}, folder / file, {"format": "pt"})
        index["weight_map"] |= dict.fromkeys(mine, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [side, side],
                                     "activation_scheme": "dynamic"}
    (folder / "config.json").write_text(json.dumps(config))
    return stored


def check_dequantised(small, model, stored):
    penstock.hf.use(model)
    experts = model.model.layers[1].mlp.experts
    for expert in range(8):
        gate, up, down = (stored[f"model.layers.1.mlp.experts.{expert}.{part}_proj.weight"].bfloat16()
                          for part in ("gate", "up", "down"))
        assert torch.equal(experts.gate_up_proj[expert], torch.cat((gate, up)))
        assert torch.equal(experts.down_proj[expert], down)
    check_as_eager(small, model)


def test_fp8_blocks_that_are_dequantised_at_loading(small, tmp_path):
    import transformers
    from packaging.version import Version

    pytest.importorskip("accelerate", reason="transformers loads fp8 with accelerate only")
    if Version(transformers.__version__) < Version("5.8"):
        pytest.skip("older versions of transformers leave the experts in fp8")
    stored = save_fp8(small, tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.bfloat16,
        quantization_config=transformers.FineGrainedFP8Config(dequantize=True))
    model.bfloat16()  # some versions of transformers leave weights in f32
    check_dequantised(small, model, stored)


def test_the_conversion_of_the_page(small, tmp_path):
    """Also of matrices whose rows do not fill whole blocks, which transformers does not dequantise."""
    from transformers import AutoModelForCausalLM

    (block,) = [each for each in blocks_of_the_page() if "def to_bf16(" in each]
    exec(block, page := {})
    (tmp_path / "fp8").mkdir()
    stored = save_fp8(small, tmp_path / "fp8", qk_rope_head_dim=20)
    page["to_bf16"](tmp_path / "fp8", tmp_path / "bf16")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "bf16", dtype=torch.bfloat16)
    attention = model.model.layers[0].self_attn
    assert attention.kv_a_proj_with_mqa.weight.shape[0] % 8 == 4
    assert torch.equal(attention.kv_a_proj_with_mqa.weight,
                       stored["model.layers.0.self_attn.kv_a_proj_with_mqa.weight"].bfloat16())
    check_dequantised(small, model, stored)
    streamed = penstock.hf.load(tmp_path / "bf16", device="cpu", dtype="bf16", progress=False)
    with torch.no_grad():
        assert torch.equal(streamed(small.prompt(), **FORWARD).logits, small.logits(model, "penstock", small.prompt()))


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


class TestChecksOnce:
    """Not in every call, which would take longer than a launch, but again when the module has changed."""

    @pytest.fixture
    def checked(self, monkeypatch):
        from penstock import _hf_experts

        checked, check = [], _hf_experts.check
        monkeypatch.setattr(_hf_experts, "check", lambda *given: checked.append(1) or check(*given))
        return checked

    @pytest.mark.parametrize("name", NAMES)
    def test_while_nothing_changes(self, small, checked, name):
        model = small.build(name)
        model.set_experts_implementation("penstock")
        layers = len([each for each in model.modules() if hasattr(each, "is_transposed")])
        for tokens in (1, 5, 1):
            small.logits(model, "penstock", small.prompt(tokens=tokens))
        assert len(checked) == layers > 0
        wanted = small.logits(copy.deepcopy(model).half(), "eager", small.prompt()).float()
        got = small.logits(model.half(), "penstock", small.prompt()).float()
        torch.testing.assert_close(got, wanted, rtol=0, atol=0.1)
        assert len(checked) == 2 * layers

    @pytest.mark.parametrize("change, says", [
        (lambda experts: setattr(experts, "act_fn", torch.nn.ReLU()), "has the activation ReLU"),
        (lambda experts: setattr(experts, "_apply_gate", abs), "has a gate of its own"),
        (lambda experts: setattr(experts, "has_gate", False), "experts without a gate"),
        (lambda experts: setattr(experts.down_proj, "data", torch.zeros(6, 64, 64)), "do not fit together"),
        (lambda experts: experts.double(), "given torch.float64"),
    ])
    def test_refuses_after_a_change(self, small, change, says):
        experts, arguments = one_experts(small)
        with torch.no_grad():
            experts(*arguments)
            change(experts)
            with pytest.raises(penstock.Unsupported, match=says):
                experts(*arguments)

    @pytest.mark.parametrize("change", [
        lambda experts: setattr(experts, "limit", 0.2), lambda experts: setattr(experts, "alpha", 0.3),
        lambda experts: experts.down_proj_bias.data.add_(1)])
    def test_computes_what_was_changed(self, small, change):
        experts, arguments = one_experts(small, "gpt_oss")
        with torch.no_grad():
            before = experts(*arguments)
            change(experts)
            got = experts(*arguments)
            experts.config._experts_implementation = "eager"
            torch.testing.assert_close(got, experts(*arguments), rtol=0, atol=1e-4)
        assert (got - before).abs().max() > 1e-2

    def test_keeps_no_module(self, small):
        import gc

        from penstock import _hf_experts

        experts, arguments = one_experts(small)
        with torch.no_grad():
            experts(*arguments)
        assert experts in _hf_experts._calls
        before = len(_hf_experts._calls)
        del experts
        gc.collect()
        assert len(_hf_experts._calls) < before


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

    def test_fp8_experts(self, small):
        """The module that transformers makes of the experts of an fp8 checkpoint."""
        model = small.with_fp8_experts("qwen3_moe")
        model.set_experts_implementation("penstock")
        experts = model.model.layers[-1].mlp.experts
        x, ids, weights = (torch.empty(9, each, device="meta") for each in (64, 2, 2))
        with torch.no_grad(), pytest.raises(penstock.Unsupported, match=FP8.format("FP8Experts")):
            experts(x, ids.long(), weights)


def blocks_of_the_page():
    page = (Path(__file__).resolve().parents[2] / "docs/transformers.md").read_text()
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_the_page(small):
    blocks = [each for each in blocks_of_the_page() if ">>>" in each]
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, "transformers.md", None, 0)
    said = []
    assert len(test.examples) > 10
    assert doctest.DocTestRunner().run(test, out=said.append).failed == 0, "".join(said)
