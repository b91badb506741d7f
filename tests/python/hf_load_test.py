"""penstock.hf.load() and penstock.hf.offload(): transformers models whose experts are streamed.

Needs torch and transformers, on the CPU and, where there is one, on a GPU. With --require-gpu a
missing transformers is an error.
"""

import dataclasses
import gc
import json
import re
import sys
import types
import weakref

import pytest

import penstock
import penstock.hf
from penstock import InvalidArgument, Unsupported

torch = pytest.importorskip("torch", reason="torch is not installed here")

NAMES = ("qwen3_moe", "mixtral", "olmoe", "deepseek_v3", "gpt_oss")
OTHERS = ("qwen2_moe", "qwen3_next", "deepseek_v2", "glm4_moe")
NOT_LISTED = ("dots1", "ernie4_5_moe", "flex_olmo", "hunyuan_v1_moe")
SHARD = "250KB"  # so that the experts of a layer are in several files
FORWARD = {"use_cache": False}
WITH_INDUCTOR = ("qwen3_moe",)  # on a GPU, where transformers compiles models with a static cache
MEMORY = "1GiB"


@pytest.fixture(scope="module")
def saved(small, tmp_path_factory):
    """Saves a model, once for every combination of arguments; returns its folder."""
    folders = {}

    def save(name, sharded=False, dtype=torch.float32, **changes):
        key = name, sharded, dtype, *sorted(changes.items())
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp(name)
            small.build(name, dtype=dtype, **changes).save_pretrained(
                folders[key], max_shard_size=SHARD if sharded else "1GB")
        return folders[key]

    return save


@pytest.fixture
def copied(saved, tmp_path):
    """A copy of a saved model that a test may damage."""
    def copy(*arguments, **options):
        for path in saved(*arguments, **options).iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        return tmp_path

    return copy


def load(folder, device="cpu", **options):
    return penstock.hf.load(folder, **{"device": device, "gpu_memory": MEMORY, "progress": False,
                                       **options})


def logits(model, ids):
    with torch.no_grad():
        return model(ids, **FORWARD).logits


def generated(model, ids, **options):
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12,
                          do_sample=False, **options)


def resident(folder, device, dtype):
    """The model with all experts on the device, computed by moe(). Loaded there, since tables that
    models compute may differ in the last bit between devices."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, experts_implementation="penstock",
        device_map=None if device == "cpu" else {"": torch.device("cuda:0")})


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_as_eager(small, saved, name, sharded, device):
    folder, ids = saved(name, sharded), small.prompt(device)
    assert (len(list(folder.glob("*.safetensors"))) > 1) == sharded
    model = load(folder, device)
    wanted = small.logits(small.build(name, device), "eager", ids)
    torch.testing.assert_close(logits(model, ids), wanted, rtol=0, atol=1e-4)
    assert not any(each.is_meta for each in [*model.parameters(), *model.buffers()])
    assert all(each.device.type == device for each in [*model.parameters(), *model.buffers()])
    assert type(model) is type(small.build(name)) and not model.training


@pytest.mark.parametrize("name", [*OTHERS, *NOT_LISTED])
def test_other_types(small, saved, name):
    """Also those that are only known from transformers' own conversions."""
    from penstock import _hf_names

    assert {*NAMES, *OTHERS} == set(_hf_names.NAMINGS)
    wanted = small.logits(small.build(name), "eager", small.prompt())
    torch.testing.assert_close(logits(load(saved(name)), small.prompt()), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_has_the_bits_of_resident_experts(small, saved, name, device):
    """Also if the checkpoint is converted to another dtype while it is loaded."""
    folder, ids = saved(name, True), small.prompt(device)
    model = load(folder, device, dtype="bf16")
    assert model.dtype == torch.bfloat16 and model.streamed_experts.store.dtype == "bf16"
    assert torch.equal(logits(model, ids), logits(resident(folder, device, "bfloat16"), ids))


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_compressed_experts_have_the_bits_of_resident_ones(small, saved, name, sharded, device,
                                                           monkeypatch):
    """Also if the checkpoint is converted to bf16, and if few experts are read at a time."""
    from penstock import _expert_reader

    monkeypatch.setattr(_expert_reader, "_COMPRESSED_BATCH", 100_000)
    folder, ids = saved(name, sharded), small.prompt(device)
    model = load(folder, device, dtype="bf16", compress=True)
    store = model.streamed_experts.store
    assert isinstance(store, penstock.CompressedExpertStore) and store.complete
    assert torch.equal(logits(model, ids), logits(resident(folder, device, "bfloat16"), ids))
    assert model.streamed_experts.statistics.misses > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_checkpoint_has_the_dtype_of_the_model(small, saved, name):
    folder = saved(name, dtype=torch.bfloat16)
    model = load(folder)
    assert model.dtype == torch.bfloat16 and model.streamed_experts.store.dtype == "bf16"
    assert torch.equal(logits(model, small.prompt()),
                       logits(resident(folder, "cpu", "auto"), small.prompt()))


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", NAMES)
def test_generates_the_same_tokens(small, saved, name, cache, device):
    ids = small.prompt(device, tokens=7)
    plain = small.build(name, device)
    plain.set_experts_implementation("eager")
    model = load(saved(name), device)
    got = generated(model, ids, cache_implementation=cache,
                    disable_compile=name not in WITH_INDUCTOR)
    assert got.shape == (2, 19) and torch.equal(got, generated(plain, ids))
    assert model.streamed_experts.statistics.calls >= 12 * model.streamed_experts.store.layers


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_compiled(small, saved, name, device):
    """torch compiles the rest of the model, with a graph break at the experts."""
    model, ids = load(saved(name), device), small.prompt(device)
    wanted = logits(model, ids)
    torch.compiler.reset()
    with torch.no_grad():
        got = torch.compile(model, backend="aot_eager")(ids, **FORWARD).logits
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4)


def test_the_implementation_does_not_matter(small, saved):
    model, ids = load(saved("olmoe")), small.prompt()
    wanted = logits(model, ids)
    for implementation in ("eager", "grouped_mm", "penstock"):
        assert torch.equal(small.logits(model, implementation, ids), wanted)


def test_tied_weights(small, saved):
    folder = saved("qwen3_moe", tie_word_embeddings=True)
    model, ids = load(folder), small.prompt()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    wanted = small.logits(small.build("qwen3_moe", tie_word_embeddings=True), "eager", ids)
    torch.testing.assert_close(logits(model, ids), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["qwen3_moe", "mixtral"])
def test_experts_that_are_stored_merged(small, name, tmp_path):
    model = small.build(name)
    model.save_pretrained(tmp_path, save_original_format=False)
    assert f"{next(iter(expert_paths(model)))}.gate_up_proj" in penstock.weights.open(tmp_path)
    torch.testing.assert_close(logits(load(tmp_path), small.prompt()),
                               small.logits(model, "eager", small.prompt()), rtol=0, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)  # the CPU computes all experts where they are
def test_experts_on_the_host(small, saved, device):
    folder, ids = saved("olmoe"), small.prompt(device, tokens=7)
    model = load(folder, device, host_experts="fixed", host_share=0.5, host_threads=2)
    torch.testing.assert_close(logits(model, ids), logits(load(folder, device), ids), rtol=0, atol=1e-4)
    assert model.streamed_experts.statistics.on_host > 0


def test_several_streams_of_options(small, saved):
    folder, ids = saved("mixtral"), small.prompt()
    wanted = logits(load(folder), ids)
    model = load(str(folder), policy="lru", prefetch="previous", pinned=[(1, 3)],
                 attn_implementation="eager", dtype="f32")
    assert model.config._attn_implementation == "eager"
    torch.testing.assert_close(logits(model, ids), wanted, rtol=0, atol=1e-4)


def test_attention_by_penstock(small, saved, monkeypatch):
    import transformers

    for interface in (transformers.AttentionInterface, transformers.AttentionMaskInterface):
        monkeypatch.delitem(interface._global_mapping, "penstock", raising=False)
    folder, ids = saved("qwen3_moe"), small.prompt()
    model = load(folder, attn_implementation="penstock", dtype="f32")
    assert model.config._attn_implementation == "penstock"
    torch.testing.assert_close(logits(model, ids), logits(load(folder), ids), rtol=0, atol=1e-4)


def expert_paths(model):
    return [path for path, module in model.named_modules() if hasattr(module, "is_transposed")]


def test_a_name_on_the_hub(small, saved, monkeypatch):
    import huggingface_hub

    asked = []

    def download(name, **options):
        asked.append((name, options))
        return str(saved("olmoe"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert logits(load("someone/olmoe", revision="v2"), small.prompt()).isfinite().all()
    assert asked == [("someone/olmoe", {"revision": "v2", "allow_patterns": ["*.json",
                                                                             "*.safetensors"]})]


def test_an_interrupted_load(small, saved, monkeypatch):
    import penstock._hf_loading

    def interrupt(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(penstock._hf_loading.ByteProgress, "add", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load(saved("mixtral", True))
    assert logits(load(saved("mixtral", True)), small.prompt()).isfinite().all()


class TestMemoryOfExperts:
    """Page-locked memory is freed without the cyclic garbage collector, which may not run for long."""

    @pytest.fixture
    def stores(self, monkeypatch):
        """Weak references to stores that are made from now on, and to views of their memory."""
        from penstock import _core, _hf_streaming

        made = []
        make, part_of = _hf_streaming.Experts.store, _core.expert_part

        def store(*arguments):
            made.append(weakref.ref(found := make(*arguments)))
            return found

        def expert_part(of, *which):
            # As an array that can have weak references.
            made.append(weakref.ref(view := part_of(of, *which).numpy()))
            return view

        monkeypatch.setattr(_hf_streaming.Experts, "store", store)
        monkeypatch.setattr(_core, "expert_part", expert_part)
        gc.collect()
        gc.disable()
        yield made
        gc.enable()

    @pytest.mark.parametrize("compress", [False, True])
    def test_is_freed_with_the_model(self, small, saved, device, stores, compress):
        model = load(saved("mixtral"), device, dtype="bf16", compress=compress)
        assert logits(model, small.prompt(device)).isfinite().all() and stores[0]() is not None
        del model
        assert not any(each() for each in stores)

    @pytest.mark.parametrize("where", ["from_pretrained", "the experts"])
    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    def test_is_freed_after_an_error(self, saved, device, stores, monkeypatch, where, error):
        """Also while the error and its traceback are still referred to."""
        from penstock import _hf_loading

        def fail(*_):
            raise error

        if where == "the experts":
            monkeypatch.setattr(_hf_loading.ByteProgress, "add", fail)
        else:
            monkeypatch.setattr(_hf_loading, "_check", fail)
        with pytest.raises(error) as raised:
            load(saved("mixtral"), device)
        assert stores and not any(each() for each in stores)
        assert raised.traceback[-1].name == "fail"


class TestOffload:
    @pytest.mark.parametrize("name", NAMES)
    def test_as_before(self, small, saved, name, device):
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(saved(name), experts_implementation="penstock")
        paths = expert_paths(model)
        ids = small.prompt(device)
        wanted = small.logits(small.build(name, device), "eager", ids)
        assert penstock.hf.offload(model, gpu_memory=MEMORY, device=device, progress=False) is model
        torch.testing.assert_close(logits(model, ids), wanted, rtol=0, atol=1e-4)
        assert all(not list(model.get_submodule(path).parameters()) for path in paths)
        assert model.device.type == device and model.streamed_experts.store.layers == len(paths)

    @pytest.mark.parametrize("name", NAMES)
    def test_compresses(self, small, saved, name, device):
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(saved(name), dtype=torch.bfloat16)
        penstock.hf.offload(model, gpu_memory=MEMORY, device=device, progress=False, compress=True)
        ids = small.prompt(device)
        assert torch.equal(logits(model, ids), logits(resident(saved(name), device, "bfloat16"), ids))

    @pytest.mark.parametrize("where", ["the copy", "the move"])
    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    def test_leaves_the_model_as_it_was(self, small, monkeypatch, where, error):
        import penstock._hf_streaming

        model, ids = small.build("qwen3_moe"), small.prompt()
        wanted, parameters = small.logits(model, "eager", ids), dict(model.named_parameters())

        def fail(*_, **__):
            monkeypatch.undo()
            raise error

        if where == "the copy":
            monkeypatch.setattr(penstock._hf_streaming.ByteProgress, "add", fail)
        else:
            monkeypatch.setattr(type(model), "to", fail)
        with pytest.raises(error):
            penstock.hf.offload(model, device="cpu", progress=False)
        assert dict(model.named_parameters()).keys() == parameters.keys()
        assert all(each is parameters[name] for name, each in model.named_parameters())
        assert not hasattr(model, "streamed_experts")
        assert torch.equal(small.logits(model, "eager", ids), wanted)

    def test_refuses_models_without_experts(self, small):
        with pytest.raises(Unsupported, match="Gemma2ForCausalLM has no experts"):
            penstock.hf.offload(small.build("gemma2"), device="cpu")

    def test_refuses_models_that_are_not_in_host_memory(self, small):
        with pytest.raises(InvalidArgument, match="model: expected one in host memory.*on meta"):
            penstock.hf.offload(small.build("mixtral").to("meta"), device="cpu")

    @pytest.mark.parametrize("changes, says", [
        ({"moe_intermediate_size": 42}, "hidden size 64 and width 42, expected multiples of 8"),
        ({"hidden_act": "relu"}, "has the activation ReLU"),
    ])
    def test_refuses_experts(self, small, changes, says):
        model = small.build("qwen3_moe", **changes)
        with pytest.raises(Unsupported, match=says):
            penstock.hf.offload(model, device="cpu")
        assert small.logits(model, "eager", small.prompt()).isfinite().all()

    def test_refuses_layers_that_differ(self, small):
        model = small.build("mixtral")
        other = small.build("mixtral", intermediate_size=80)
        model.model.layers[0].mlp = other.model.layers[0].mlp
        with pytest.raises(Unsupported, match="one kind in all layers.*model.layers.1.mlp.experts"):
            penstock.hf.offload(model, device="cpu")

    def test_refuses_quantised_experts(self, small):
        with pytest.raises(Unsupported, match=r"\(?FP8Experts.*bf16, f16 or f32, given torch.float8_e4m3fn"):
            penstock.hf.offload(small.with_fp8_experts("qwen3_moe").to_empty(device="cpu"), device="cpu")


class TestRefuses:
    def test_a_missing_shard(self, copied):
        folder = copied("olmoe", True)
        shard = sorted(folder.glob("*.safetensors"))[1]
        shard.unlink()
        with pytest.raises((OSError, InvalidArgument), match=shard.name):
            load(folder)

    def test_a_damaged_shard(self, copied):
        folder = copied("olmoe")
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-7])
        with pytest.raises(InvalidArgument, match="model.safetensors"):
            load(folder)

    @pytest.mark.parametrize("name, missing", [
        ("qwen3_moe", "model.layers.1.mlp.experts.5.up_proj.weight"),
        ("mixtral", "model.layers.0.block_sparse_moe.experts.0.w1.weight"),
        ("gpt_oss", "model.layers.1.mlp.experts.down_proj_bias"),
        ("gpt_oss", "model.layers.0.mlp.experts.gate_up_proj"),
        ("qwen3_moe", "model.layers.1.self_attn.q_norm.weight"), ("olmoe", "lm_head.weight"),
    ])
    def test_a_missing_tensor(self, copied, name, missing):
        folder = copied(name)
        change(folder, lambda tensors: tensors.pop(missing))
        with pytest.raises(InvalidArgument, match=f"path_or_name: .*{re.escape(missing)}"):
            load(folder)

    @pytest.mark.parametrize("name, tensor", [
        ("qwen3_moe", "model.layers.1.mlp.experts.5.up_proj.weight"),
        ("gpt_oss", "model.layers.1.mlp.experts.gate_up_proj"),
        ("gpt_oss", "model.layers.1.mlp.experts.gate_up_proj_bias")])
    def test_a_wrong_shape(self, copied, name, tensor):
        folder = copied(name)
        change(folder, lambda tensors: tensors.update({tensor: tensors[tensor][:-1].contiguous()}))
        with pytest.raises(InvalidArgument, match=f"{re.escape(tensor)} of shape .*config.json says"):
            load(folder)

    def test_quantised_tensors(self, copied):
        folder = copied("mixtral")
        tensor = "model.layers.1.block_sparse_moe.experts.2.w2.weight"
        change(folder, lambda tensors: tensors.update(
            {tensor: tensors[tensor].to(torch.float8_e4m3fn)}))
        with pytest.raises(Unsupported, match=f"given {re.escape(tensor)} in F8_E4M3"):
            load(folder)

    @pytest.mark.parametrize("name", ["deepseek_v3", "gpt_oss"])
    def test_a_quantised_checkpoint(self, copied, name):
        folder = copied(name)
        edit_config(folder, quantization_config={"quant_method": "mxfp4"})
        with pytest.raises(Unsupported, match="given one quantised by mxfp4"):
            load(folder)

    def test_another_type_of_model(self, small, tmp_path):
        import transformers

        config = transformers.PhimoeConfig(**small.SIZES, intermediate_size=48, num_local_experts=4)
        transformers.PhimoeForCausalLM(config).save_pretrained(tmp_path)
        with pytest.raises(Unsupported, match="of type deepseek_v2, .*, given phimoe; .*offload"):
            load(tmp_path)

    def test_a_version_of_transformers_without_conversions(self, saved, monkeypatch):
        folder = saved("flex_olmo")  # saving needs the conversions, too
        monkeypatch.setitem(sys.modules, "transformers.conversion_mapping", None)
        with pytest.raises(Unsupported, match="of type deepseek_v2, .*, given flex_olmo; .*offload"):
            load(folder)

    def test_a_model_without_experts(self, saved):
        with pytest.raises(Unsupported, match="Gemma2ForCausalLM has no experts"):
            load(saved("gemma2"))

    @pytest.mark.parametrize("option, value, says", [
        ("gpu_memory", "lots", "gpu_memory"), ("gpu_memory", -1, "gpu_memory"),
        ("gpu_memory", None, "gpu_memory: expected a number of bytes"),
        ("policy", "best", "policy: expected 'frequency' or 'lru', given 'best'"),
        ("prefetch", True, "prefetch: expected 'none', 'previous' or 'gate', given True"),
        ("device", "tpu", "device"), ("dtype", "int8", "dtype"), ("pinned", [(9, 0)], "pinned"),
        ("host_experts", "all", "host_experts: expected 'none', 'balanced' or 'fixed', given 'all'"),
        ("host_share", 0.5, "host_share: expected 0"), ("host_share", "half", "host_share"),
        ("host_threads", 2, "host_threads: expected 0, because host_experts is 'none'"),
        ("host_threads", 257, "host_threads: expected at most 256"),
    ])
    def test_options(self, saved, option, value, says):
        with pytest.raises(InvalidArgument, match=says):
            load(saved("mixtral"), **{option: value})

    def test_experts_on_the_host(self, saved, device):
        """Refused before anything is loaded: on the CPU, with compressed experts, and with a share that
        cannot be."""
        wrong = {"device": device, "host_experts": "fixed", "host_share": 0.5}
        if device == "cuda":
            wrong["compress"] = True
        with pytest.raises(InvalidArgument, match="host_experts: expected 'none'"):
            load(saved("mixtral"), **wrong)
        if device == "cuda":
            for share in (0, -1, 1.5, float("nan")):
                with pytest.raises(InvalidArgument, match="host_share: expected a number above 0"):
                    load(saved("mixtral"), device=device, host_experts="fixed", host_share=share)

    def test_balanced_with_deterministic_algorithms(self, small):
        """Before anything is loaded. The device need not be there."""
        from penstock import _hf_streaming

        device = types.SimpleNamespace(kind="cuda", name="cuda:0")
        options = _hf_streaming.Options(device, 1 << 30, "lru", "none", (), False, host_experts="balanced")
        torch.use_deterministic_algorithms(True)
        try:
            with pytest.raises(Unsupported, match="^host_experts='balanced': results depend on measured times"):
                _hf_streaming._check_host_experts(options)
        finally:
            torch.use_deterministic_algorithms(False)
        _hf_streaming._check_host_experts(options)

    def test_compression_of_other_types(self, saved):
        with pytest.raises(Unsupported, match="expected experts in bf16 to compress them, given f32"):
            load(saved("mixtral"), compress=True)

    def test_too_little_memory_for_compressed_experts(self, saved):
        with pytest.raises(InvalidArgument, match="gpu_memory: expected at least"):
            load(saved("mixtral"), dtype="bf16", compress=True, gpu_memory=1000)

    @pytest.mark.parametrize("path", ["/nowhere/at/all", "./here", 3])
    def test_paths(self, small, path):
        with pytest.raises(InvalidArgument, match="path_or_name: expected a folder"):
            load(path)

    def test_a_folder_without_a_checkpoint(self, small, tmp_path):
        with pytest.raises((OSError, InvalidArgument), match=str(tmp_path)):
            load(tmp_path)

    def check(self, small, resident, gpu_bytes=1 << 20, free=1 << 30, pinned=((0, 0),)):
        """Whether a model with so many bytes of other weights fits on a GPU."""
        from penstock import _hf_streaming

        experts = _hf_streaming.described(_hf_streaming.found_in(small.build("mixtral")))
        device = types.SimpleNamespace(kind="cuda", name="cuda:0", capabilities={"free_bytes": free})
        options = _hf_streaming.Options(device, gpu_bytes, "lru", "none", pinned, False)
        _hf_streaming.check_before_loading(options, experts, 2, resident)
        return _hf_streaming.cache_bytes(options, experts, 2, resident)

    def test_too_little_memory_before_anything_is_loaded(self, small):
        store = penstock.ExpertStore(layers=2, experts=6, hidden=64, width=72, dtype="f32", device="cpu")
        least = store.least_bytes(pinned=1)
        most = (1 << 20) - least
        assert self.check(small, most) == least
        with pytest.raises(InvalidArgument, match=f"gpu_memory: expected at least {(1 << 20) + 1} bytes: "
                                                  f"{most + 1} for the weights other than experts and "
                                                  f"{least} for a cache of experts, given {1 << 20}"):
            self.check(small, most + 1)

    def test_more_memory_than_there_is(self, small):
        assert self.check(small, 1000, 1 << 40, free=1 << 20) == (1 << 40) - 1000  # all experts fit
        with pytest.raises(InvalidArgument, match="gpu_memory: expected at most 500000 bytes, which are "
                                                  "free on cuda:0, given 1048576"):
            self.check(small, 1000, 1 << 20, free=500_000)

    def test_pinned_experts_that_do_not_exist(self, small):
        for pinned in ((2, 0), (0, 6), (-1, 0)):
            with pytest.raises(InvalidArgument, match="pinned: expected layers below 2 and experts below 6"):
                self.check(small, 0, pinned=(pinned,))

    def test_a_wrong_shape_of_another_weight(self, copied):
        folder = copied("mixtral")
        name = "model.layers.0.self_attn.q_proj.weight"
        change(folder, lambda tensors: tensors.update({name: tensors[name][:-1].contiguous()}))
        with pytest.raises(InvalidArgument, match=re.escape(
                f"{name} of shape (64, 64), as config.json says, given (63, 64)")):
            load(folder)


@pytest.mark.gpu
def test_too_little_memory_on_a_gpu(small, saved):
    if not torch.cuda.is_available():
        pytest.skip("no GPU for torch")
    with pytest.raises(InvalidArgument, match="gpu_memory: expected at least"):
        load(saved("mixtral"), "cuda", gpu_memory=1 << 16)
    model = small.build("mixtral")
    with pytest.raises(InvalidArgument, match="gpu_memory: expected at least"):
        penstock.hf.offload(model, device="cuda", gpu_memory=1 << 16)
    assert small.logits(model, "eager", small.prompt()).isfinite().all()


def change(folder, how):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    how(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def edit_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_what_the_memory_holds(small, saved):
    """Everything but the experts, with tied weights once."""
    from penstock import _hf_streaming

    model = small.build("qwen3_moe", tie_word_embeddings=True)
    modules = _hf_streaming.found_in(model)
    held = sum(each.nbytes for module in modules.values() for each in module.parameters())
    every = sum(each.nbytes for each in [*model.parameters(), *model.buffers()])
    assert _hf_streaming.resident_bytes(model, modules.values()) == every - held
    loaded = load(saved("qwen3_moe", tie_word_embeddings=True))
    assert _hf_streaming.resident_bytes(loaded, ()) == every - held


def test_host_memory(small, saved, python, tmp_path):
    """Loading takes little more host memory than the experts."""
    small.build("qwen3_moe", hidden_size=512, moe_intermediate_size=512, num_experts=48, head_dim=8,
                dtype=torch.bfloat16).save_pretrained(tmp_path, max_shard_size="40MB")
    experts = 2 * 48 * 3 * 512 * 512 * 2
    said = python(f"""
        import re, penstock.hf
        def peak():
            return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
        def load(folder):
            return penstock.hf.load(folder, device="cpu", progress=False)
        load({str(saved("qwen3_moe"))!r})  # imports what it needs
        before = peak()
        model = load({str(tmp_path)!r})
        print(peak() - before, model.streamed_experts.store.nbytes)
    """, timeout=300).stdout
    grown, held = map(int, said.split())
    assert held <= 1.05 * experts and grown <= 1.05 * experts + (8 << 20), (grown, held)


class TestUse:
    def test_saving_is_refused(self, saved, tmp_path):
        model = load(saved("olmoe"))
        for save in (model.state_dict, lambda: model.save_pretrained(tmp_path)):
            with pytest.raises(Unsupported, match="model.layers.0.mlp.experts.* in an ExpertStore"):
                save()

    def test_gradients_are_refused(self, small, saved):
        model = load(saved("mixtral"))
        with pytest.raises(Unsupported, match="requires a gradient.*no_grad"):
            model(small.prompt(), **FORWARD)
        assert logits(model, small.prompt()).isfinite().all()

    def test_closed(self, small, saved, device):
        model = load(saved("mixtral"), device)
        model.streamed_experts.close()
        with pytest.raises(penstock.ExpertsClosed):
            logits(model, small.prompt(device))

    def test_an_interrupted_generation(self, small, saved, device):
        """Ctrl-C between and in the middle of tokens."""
        model, ids = load(saved("qwen3_moe"), device), small.prompt(device, tokens=7)
        wanted = generated(model, ids)
        calls = []

        def interrupt(*_):
            calls.append(1)
            if len(calls) % 5 == 0:
                raise KeyboardInterrupt

        for layer in model.model.layers:
            layer.mlp.experts.register_forward_hook(interrupt)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                generated(model, ids)
        for layer in model.model.layers:
            layer.mlp.experts._forward_hooks.clear()
        assert torch.equal(generated(model, ids), wanted)

    def test_other_types_of_the_input(self, small, saved):
        model = load(saved("mixtral"), dtype="bf16")
        experts = model.model.layers[0].mlp.experts
        x, ids = torch.randn(2, 3, 64), torch.tensor([[0, 5]] * 6)
        with torch.no_grad():
            out = experts(x, ids, torch.ones(6, 2))
        assert out.dtype == torch.float32 and out.shape == x.shape
        assert "layer 0 of <penstock.StreamedExperts" in repr(model)


class TestProgress:
    def test_a_bar(self, saved, capsys):
        pytest.importorskip("tqdm")
        load(saved("mixtral"), progress=True)
        assert "Loading experts: 100%" in capsys.readouterr().err

    def test_lines_without_tqdm(self, saved, capsys, monkeypatch):
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
        load(saved("mixtral"), progress=True)
        assert "Loading experts: 100 % of 0.0 GiB\n" in capsys.readouterr().err

    def test_none(self, saved, capsys):
        load(saved("mixtral"), progress=False)
        assert "experts" not in capsys.readouterr().err


class TestNames:
    """The table of names against what transformers does when it loads such a checkpoint."""

    def test_the_table(self, small):
        from penstock import _hf_names

        for model_type, naming in _hf_names.NAMINGS.items():
            wanted = {}
            if naming is not None:
                folder = naming.folder.removeprefix("block_sparse_moe.")
                wanted = _hf_names.merged_from(dataclasses.replace(naming, folder=folder))
            assert _hf_names.conversions(model_type) == wanted, model_type

    def test_the_modules(self, small):
        """Every type has its experts where the table expects them."""
        import transformers

        from penstock import _hf_names

        for model_type in _hf_names.NAMINGS:
            config = transformers.CONFIG_MAPPING[model_type](num_hidden_layers=4)
            with torch.device("meta"):
                model = transformers.AutoModelForCausalLM.from_config(config)
            paths = expert_paths(model)
            assert paths and all(path.endswith("." + _hf_names.MODULE) for path in paths), model_type
            assert model.get_submodule(paths[0]).config.model_type == model_type
