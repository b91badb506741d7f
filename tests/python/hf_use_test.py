"""penstock.hf.use(): which models it switches to Penstock, and which it refuses before it changes them.

Needs torch and transformers. With --require-gpu a missing transformers is an error.
"""

import copy

import pytest

import penstock
import penstock.hf
from penstock import InvalidArgument, Unsupported

torch = pytest.importorskip("torch", reason="torch is not installed here")

NAMES = ("qwen3_moe", "mixtral", "olmoe", "deepseek_v3", "gpt_oss")


def computed(model, ids):
    with torch.no_grad():
        return model(ids, use_cache=False).logits


@pytest.mark.parametrize("name", NAMES)
def test_switches(small, name, device):
    model, ids = small.build(name, device), small.prompt(device)
    wanted = small.logits(model, "penstock", ids)
    model.set_experts_implementation("eager")
    assert penstock.hf.use(model) is model
    assert model.config._experts_implementation == "penstock"
    assert torch.equal(computed(model, ids), wanted)
    assert penstock.hf.use(model) is model  # once more


def test_another_name(small):
    model = penstock.hf.use(small.build("mixtral"), "of the test")
    assert model.config._experts_implementation == "of the test"
    assert computed(model, small.prompt()).isfinite().all()


def test_models_that_transformers_does_not_switch(small):
    """It looks for its decorator in the source file of the model's class, and sets the configuration of the
    model, which may not be that of the experts."""
    model, ids = small.build("qwen3_moe"), small.prompt()
    wanted = small.logits(model, "penstock", ids)
    model.set_experts_implementation("zeros")
    for layer in model.model.layers:
        layer.mlp.experts.config = copy.deepcopy(model.config)
    model.__class__ = type("Derived", (type(model),), {
        "__module__": __name__, "_can_set_experts_implementation_cached_value": False})
    model.set_experts_implementation("penstock")
    assert not torch.equal(computed(model, ids), wanted)
    penstock.hf.use(model)
    assert torch.equal(computed(model, ids), wanted)
    assert model.config._experts_implementation == "penstock"


def test_streamed_models_are_not_changed(small):
    model, ids = small.build("olmoe"), small.prompt()
    wanted = small.logits(model, "penstock", ids)
    penstock.hf.offload(model, device="cpu", progress=False)
    assert penstock.hf.use(model) is model
    torch.testing.assert_close(computed(model, ids), wanted, rtol=0, atol=1e-4)


def test_models_that_accelerate_has_dispatched(small):
    """Weights come to the device for every call; offload() does not take them over."""
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed here")
    model, ids = small.build("qwen3_moe"), small.prompt()
    wanted = small.logits(model, "penstock", ids)
    model.set_experts_implementation("eager")
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    assert all(each.is_meta for each in model.parameters())
    penstock.hf.use(model)
    assert torch.equal(computed(model, ids), wanted)
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="model: expected one in host memory.* penstock.hf.load loads "
                                                  "it .*given one that accelerate has dispatched"):
            penstock.hf.offload(model, device="cpu", progress=False)
        assert torch.equal(computed(model, ids), wanted)


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_models_loaded_with_a_device_map(small, name, tmp_path):
    """One layer stays on the disk, as if it did not fit."""
    pytest.importorskip("accelerate", reason="accelerate is not installed here")
    import transformers

    plain, ids = small.build(name), small.prompt(tokens=5)
    plain.save_pretrained(tmp_path / "saved")
    parts = ["lm_head", *(f"model.{each}" for each in ("embed_tokens", "layers.0", "norm", "rotary_emb"))]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "saved", experts_implementation="penstock", offload_folder=tmp_path / "offloaded",
        device_map={**dict.fromkeys(parts, "cpu"), "model.layers.1": "disk"})
    assert model.model.layers[1].mlp.experts.down_proj.is_meta
    assert penstock.hf.use(model).config._experts_implementation == "penstock"
    wanted = small.logits(plain, "penstock", ids)
    torch.testing.assert_close(computed(model, ids), wanted, rtol=0, atol=1e-5)
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 4, "do_sample": False}
    assert torch.equal(model.generate(ids, **options), plain.generate(ids, **options))
    with pytest.raises(InvalidArgument, match="one that accelerate has dispatched"):
        penstock.hf.offload(model, device="cpu", progress=False)


class TestRefuses:
    def check(self, model, says):
        """Refused, and nothing of the model has changed."""
        configs = {id(each.config): each.config for each in model.modules() if hasattr(each, "config")}
        before = {key: copy.deepcopy(each) for key, each in configs.items()}
        tensors = dict(model.state_dict(keep_vars=True))
        modules = dict(model.named_modules())
        with pytest.raises(Unsupported, match=says):
            penstock.hf.use(model)
        for key, config in configs.items():
            assert config.to_dict() == before[key].to_dict()
            assert config._experts_implementation == before[key]._experts_implementation != "penstock"
        assert dict(model.named_modules()) == modules
        after = model.state_dict(keep_vars=True)
        assert after.keys() == tensors.keys() and all(after[name] is tensors[name] for name in tensors)

    @pytest.mark.parametrize("name, config, says", [
        ("Llama4ForCausalLM", {"model": "Llama4Text", "intermediate_size_mlp": 48, "head_dim": 16,
                               "num_local_experts": 4},
         r"model.layers.\d.feed_forward.experts \(Llama4TextExperts\)"),
        ("DbrxForCausalLM", {"model": "Dbrx", "d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 64,
                             "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0},
                             "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "hidden_size": 64}},
         r"transformer.blocks.0.ffn.experts \(DbrxExperts\)"),
        ("JetMoeForCausalLM", {"model": "JetMoe", "num_local_experts": 4, "kv_channels": 16},
         r"model.layers.\d.mlp.input_linear \(JetMoeParallelExperts\)"),
    ])
    def test_experts_without_the_interface(self, small, name, config, says):
        """Those that transformers would compute itself, whatever the implementation is called."""
        import transformers

        config = {**small.SIZES, "intermediate_size": 48, **config}
        kind = getattr(transformers, config.pop("model") + "Config")
        model = getattr(transformers, name)(kind(**config)).eval()
        self.check(model, f"expected experts that use transformers' experts interface.*given {says} of {name}, "
                          "which transformers computes without Penstock")

    def test_experts_in_a_list(self, small):
        """As models have them that come with their own code; in one layer only."""
        model = small.build("mixtral")
        model.model.layers[1].mlp.experts = torch.nn.ModuleList([torch.nn.Linear(8, 8)])
        self.check(model, r"given model.layers.1.mlp.experts \(ModuleList\)")

    def test_experts_in_mxfp4(self, small):
        from transformers.integrations.mxfp4 import Mxfp4GptOssExperts

        model = small.build("gpt_oss", intermediate_size=64)
        model.model.layers[1].mlp.experts = Mxfp4GptOssExperts(model.config)
        self.check(model, r"model.layers.1.mlp.experts \(Mxfp4GptOssExperts\) has experts in MXFP4, expected "
                          r"bf16, f16 or f32; .*quantization_config=Mxfp4Config\(dequantize=True\)")

    def test_experts_in_fp8(self, small):
        self.check(small.with_fp8_experts("qwen3_moe"),
                   r"model.layers.0.mlp.experts \(FP8Experts\): gate_up_proj: expected expert weights in bf16, f16 "
                   r"or f32, given torch.float8_e4m3fn; .*FineGrainedFP8Config\(dequantize=True\)")

    @pytest.mark.parametrize("dtype, says", [
        (torch.float8_e4m3fn, r"FineGrainedFP8Config\(dequantize=True\)"),
        (torch.int8, r"FineGrainedFP8Config\(dequantize=True\)"),
        (torch.uint8, r"Mxfp4Config\(dequantize=True\)"),
        (torch.float64, r"model.to\(torch.bfloat16\)"),
    ])
    def test_other_dtypes(self, small, dtype, says):
        model = small.build("mixtral")
        replace(model.model.layers[1].mlp.experts, "gate_up_proj", lambda each: each.to(dtype))
        self.check(model, r"model.layers.1.mlp.experts \(MixtralExperts\): gate_up_proj: expected expert weights "
                          f"in bf16, f16 or f32, given {dtype}; .*{says}")

    @pytest.mark.parametrize("name, part", [("mixtral", "down_proj"), ("gpt_oss", "gate_up_proj_bias"),
                                            ("gpt_oss", "down_proj_bias")])
    def test_dtypes_that_differ(self, small, name, part):
        model = small.build(name)
        replace(model.model.layers[1].mlp.experts, part, lambda each: each.bfloat16())
        self.check(model, rf"model.layers.1.mlp.experts \(\w+\): {part}: expected torch.float32, the dtype of "
                          "gate_up_proj, given torch.bfloat16")

    @pytest.mark.parametrize("part", ["gate_up_proj", "down_proj"])
    def test_tensors_of_another_class(self, small, part):
        """As quantising and distributing libraries make them."""
        from torch.testing._internal.two_tensor import TwoTensor

        model = small.build("mixtral")
        experts = model.model.layers[1].mlp.experts
        replace(experts, part, lambda each: TwoTensor(each, each))
        assert getattr(experts, part).dtype == torch.float32
        self.check(model, rf"model.layers.1.mlp.experts \(MixtralExperts\): {part}: expected a plain tensor, given "
                          "a TwoTensor")
        model.set_experts_implementation("penstock")
        with pytest.raises(Unsupported, match=f"{part}: expected a plain tensor, given a TwoTensor"):
            computed(model, small.prompt())

    @pytest.mark.parametrize("name, part", [("mixtral", "down_proj"), ("mixtral", "gate_up_proj"),
                                            ("gpt_oss", "down_proj"), ("gpt_oss", "gate_up_proj_bias"),
                                            ("gpt_oss", "down_proj_bias")])
    def test_shapes_that_do_not_fit(self, small, name, part):
        model = small.build(name)
        replace(model.model.layers[1].mlp.experts, part, lambda each: each[:, :-1])
        self.check(model, r"model.layers.1.mlp.experts \(\w+\) has gate_up_proj of shape .*do not fit together")

    def test_weights_of_two_dimensions(self, small):
        model = small.build("mixtral")
        replace(model.model.layers[0].mlp.experts, "down_proj", lambda each: each[0])
        self.check(model, r"model.layers.0.mlp.experts \(MixtralExperts\) has weights of 3 and 2 dimensions")

    @pytest.mark.parametrize("changes, says", [
        ({"num_experts": 1032, "moe_intermediate_size": 8}, "has 1032 experts, expected at most 1024"),
        ({"num_experts": 24, "num_experts_per_tok": 17}, "has 17 experts per token, expected at most 16"),
        ({"hidden_act": "relu"}, "has the activation ReLU, expected silu"),
    ])
    def test_sizes_and_activations(self, small, changes, says):
        self.check(small.build("qwen3_moe", **changes),
                   rf"model.layers.0.mlp.experts \(Qwen3MoeExperts\) {says}")

    def test_one_gate_of_its_own(self, small):
        model = small.build("mixtral")
        model.model.layers[1].mlp.experts._apply_gate = lambda both: both.chunk(2, -1)[0]
        self.check(model, r"model.layers.1.mlp.experts \(MixtralExperts\) has a gate of its own")
        assert small.logits(model, "eager", small.prompt()).isfinite().all()

    def test_models_without_experts(self, small):
        self.check(small.build("gemma2"), "Gemma2ForCausalLM has no experts")

    def test_other_objects(self, small):
        for model in (torch.nn.Linear(2, 2), None):
            with pytest.raises(InvalidArgument, match="^model: expected a model of transformers, given "):
                penstock.hf.use(model)


def replace(module, name, change):
    """A parameter by what `change` makes of it."""
    changed = change(getattr(module, name).detach())
    setattr(module, name, torch.nn.Parameter(changed, requires_grad=False))
