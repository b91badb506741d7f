"""penstock.hf.load(host_memory=..., packed=...): experts on a disk, with a cache in host memory. On the CPU
and, where there is one, on a GPU."""

import re

import pytest

import penstock
import penstock.hf
from penstock import InvalidArgument

torch = pytest.importorskip("torch", reason="torch is not installed here")

NAMES = ("qwen3_moe", "mixtral", "deepseek_v3", "gpt_oss")
BLOCK = 3 * 64 * 48 * 4  # bytes of an expert of qwen3_moe in f32


@pytest.fixture(scope="module")
def saved(small, tmp_path_factory):
    """Saves a model, once for every combination of arguments; returns its folder."""
    folders = {}

    def save(name, **changes):
        key = name, *sorted(changes.items())
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp(name)
            small.build(name, **changes).save_pretrained(folders[key], max_shard_size="250KB")
        return folders[key]

    return save


@pytest.fixture
def packed(tmp_path):
    return tmp_path / "model.experts"


def load(folder, packed, device="cpu", **options):
    return penstock.hf.load(folder, **{"device": device, "gpu_memory": "1GiB", "progress": False,
                                       "host_memory": "1MiB", "packed": packed, **options})


def in_memory(folder, device="cpu", **options):
    return penstock.hf.load(folder, device=device, gpu_memory="1GiB", progress=False, **options)


def logits(model, ids):
    with torch.no_grad():
        return model(ids, use_cache=False).logits


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", NAMES)
def test_has_the_bits_of_experts_in_memory(small, saved, name, dtype, device, packed):
    """Also if the checkpoint is converted while it is packed."""
    folder, ids = saved(name), small.prompt(device)
    model = load(folder, packed, device, dtype=dtype, host_memory=4 * BLOCK)
    store = model.streamed_experts.store
    assert isinstance(store, penstock.DiskExpertStore) and store.dtype == dtype
    assert 2 <= store.slots and store.host_bytes <= 4 * BLOCK
    wanted = logits(in_memory(folder, device, dtype=dtype), ids)
    assert torch.equal(logits(model, ids), wanted)
    again = load(folder, packed, device, dtype=dtype)  # from the file that is there
    assert torch.equal(logits(again, ids), wanted)
    assert again.streamed_experts.store.file == store.file


@pytest.mark.parametrize("prefetch", ["previous", "gate"])
def test_generates_the_same_tokens(small, saved, device, packed, prefetch):
    folder, ids = saved("qwen3_moe"), small.prompt(device, 1, 7)
    model = load(folder, packed, device, host_memory=6 * BLOCK, prefetch=prefetch)
    options = {"max_new_tokens": 12, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    assert torch.equal(model.generate(ids, **options), in_memory(folder, device).generate(ids, **options))
    model.streamed_experts.synchronize()
    assert model.streamed_experts.store.statistics.evicted > 0


def test_packs_once(small, saved, packed, monkeypatch, tmp_path):
    from penstock import _hf_packing

    folder, told = saved("mixtral"), []
    monkeypatch.setattr(_hf_packing, "_BATCH", 3 * 64 * 72 * 4 * 5)  # five experts at a time
    real = penstock._core.pack_filled
    monkeypatch.setattr(_hf_packing._core, "pack_filled", lambda *call: (told.append(call[0]), real(*call)))
    for _ in range(2):
        model = load(str(folder), str(packed))
    assert told == [str(packed)] and sorted(tmp_path.iterdir()) == [packed]
    assert torch.equal(logits(model, small.prompt()), logits(in_memory(folder), small.prompt()))


def test_says_where_the_file_is_and_when_it_was_packed(saved, packed, capsys):
    for first in (True, False):
        load(saved("mixtral"), packed, progress=True)
        said = capsys.readouterr().err
        assert ("Packing experts" in said) == first
        assert re.search(rf"Packed experts: {packed}, 0\.0 GiB, packed in \d+\.\d s on "
                         r"\d{4}-\d\d-\d\d at \d\d:\d\d:\d\d\n", said)
    load(saved("mixtral"), packed)
    assert capsys.readouterr().err == ""


def test_host_memory(small, python, tmp_path):
    """The experts are larger than what loading and running takes."""
    small.build("qwen3_moe", hidden_size=512, moe_intermediate_size=512, num_experts=96, head_dim=8,
                dtype=torch.bfloat16).save_pretrained(tmp_path, max_shard_size="40MB")
    experts, cache = 2 * 96 * 3 * 512 * 512 * 2, 32 << 20
    said = python(f"""
        import re, torch, penstock.hf
        from penstock import _hf_packing
        _hf_packing._BATCH = 16 << 20
        def peak():
            return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
        import transformers.models.qwen3_moe.modeling_qwen3_moe
        before = peak()
        model = penstock.hf.load({str(tmp_path)!r}, device="cpu", progress=False, host_memory={cache},
                                 packed={str(tmp_path / "packed")!r})
        with torch.no_grad():
            model(torch.arange(2, 82)[None], use_cache=False)
        print(peak() - before)
    """, timeout=300).stdout
    assert experts > 250 << 20 and int(said) < experts / 2, said


class TestRefuses:
    def test_one_without_the_other(self, saved, packed):
        with pytest.raises(InvalidArgument, match="packed: expected a path .* because host_memory is set, given None"):
            load(saved("mixtral"), None)
        with pytest.raises(InvalidArgument, match="host_memory: expected .* because packed is set, given None"):
            load(saved("mixtral"), packed, host_memory=None)

    @pytest.mark.parametrize("options, says", [
        ({"compress": True}, "compress: expected False, because packed experts are not compressed"),
        ({"packed": 3}, "packed: expected a path for a file of packed experts, given 3"),
        ({"packed": "/nowhere/at/all"}, "packed: expected a path in a folder that exists"),
        ({"host_memory": 1000}, "host_memory: expected at least .* bytes, for 2 experts, given 1000"),
        ({"host_memory": "lots"}, "host_memory"), ({"host_memory": -1}, "host_memory"),
    ])
    def test_options(self, saved, packed, options, says):
        with pytest.raises(InvalidArgument, match=says):
            load(saved("mixtral"), **{"packed": packed, **options})
        assert not packed.exists()

    def test_a_full_disk(self, saved, packed, monkeypatch):
        import shutil

        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 99, 1))
        with pytest.raises(OSError, match="packed: expected [0-9]+ free bytes for the experts, given 1"):
            load(saved("mixtral"), packed)

    def test_a_file_of_another_shape(self, saved, packed):
        load(saved("mixtral"), packed)
        for folder, options, given in ((saved("qwen3_moe"), {}, "2 layers of 6 experts"),
                                       (saved("mixtral"), {"dtype": "bf16"}, "f32, concatenated")):
            with pytest.raises(InvalidArgument, match=f"packed: expected a file of .*{given}.*another path"):
                load(folder, packed, **options)

    def test_a_file_of_another_checkpoint(self, small, saved, packed, tmp_path):
        load(saved("mixtral"), packed)
        other = small.build("mixtral")
        with torch.no_grad():
            for layer in other.model.layers[1:]:
                layer.mlp.experts.down_proj.add_(0.25)
        other.save_pretrained(tmp_path / "other")
        with pytest.raises(InvalidArgument, match="packed: expected a file with the experts of .*other, given "
                                                  ".*where expert 1 of layer 1 has other weights"):
            load(tmp_path / "other", packed)

    def test_a_file_of_something_else(self, saved, packed):
        packed.write_bytes(bytes(10000))
        with pytest.raises(InvalidArgument, match="model.experts: expected a file of packed experts"):
            load(saved("mixtral"), packed)
        assert packed.stat().st_size == 10000

    def test_a_folder(self, saved, tmp_path):
        with pytest.raises((OSError, InvalidArgument), match=str(tmp_path)):
            load(saved("mixtral"), tmp_path)


def test_an_interrupted_load(small, saved, packed, monkeypatch):
    import penstock._hf_packing

    def interrupt(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(penstock._hf_packing.ByteProgress, "add", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load(saved("mixtral"), packed)
    assert list(packed.parent.iterdir()) == []
    assert logits(load(saved("mixtral"), packed), small.prompt()).isfinite().all()
