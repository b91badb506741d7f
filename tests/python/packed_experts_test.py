"""pack_experts, DiskExpertStore, and StreamedExperts that read one, with NumPy on the CPU."""

import datetime
import gc
import os
import time

import numpy as np
import pytest

import penstock
from experts_support import BITS, bits_of, draw_tokens, draw_weights, fill
from penstock import (DiskExpertStore, ExpertStore, InvalidArgument, StreamedExperts, expert_file_info,
                      pack_experts, weights)

SHAPE = {"layers": 3, "experts": 5, "hidden": 24, "width": 16}
BLOCK = 3 * 24 * 16 * 4  # bytes of an expert in f32


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.experts"


def filler(drawn, dtype):
    def fill_expert(layer, expert, views):
        views.set(**{part: bits_of(each[expert], dtype) for part, each in drawn[layer].items()})

    return fill_expert


def packed(path, seed=1, dtype="f32", bias=False, **changes):
    """Packs random experts; returns the weights per layer."""
    shape = {**SHAPE, **{name: changes.pop(name) for name in list(changes) if name in SHAPE}}
    drawn = draw_weights(seed, bias=bias, **shape)
    pack_experts(path, **shape, dtype=dtype, bias=bias, fill=filler(drawn, dtype), **changes)
    return drawn


def a_store(path, slots=4, **options):
    return DiskExpertStore(path, **{"host_bytes": slots * BLOCK, "device": "cpu", **options})


def in_memory(drawn, dtype="f32", bias=False, **changes):
    experts, hidden, width = drawn[0]["gate_up"].shape[0], *drawn[0]["down"].shape[1:]
    return fill(ExpertStore(layers=len(drawn), experts=experts, hidden=hidden, width=width, dtype=dtype,
                            bias=bias, device="cpu", **changes), drawn)


class TestPacking:
    @pytest.mark.parametrize("bias", [False, True])
    @pytest.mark.parametrize("transposed", [False, True])
    @pytest.mark.parametrize("dtype", ["f32", "f16"])
    def test_has_the_bits_of_experts_in_memory(self, path, dtype, transposed, bias):
        options = {"transposed": transposed, "layout": "interleaved" if transposed else "concatenated"}
        drawn = packed(path, dtype=dtype, bias=bias, **options)
        plain = StreamedExperts(in_memory(drawn, dtype, bias, **options), device="cpu")
        experts = StreamedExperts(a_store(path), device="cpu")
        for layer in (0, 2, 1, 2):
            call = draw_tokens(layer, 9, dtype=BITS[dtype])
            np.testing.assert_array_equal(experts.forward(layer, *call), plain.forward(layer, *call))

    def test_views_and_arrays(self, path):
        drawn = draw_weights(1, **SHAPE)

        def fill_by_views(layer, expert, views):
            assert not views.gate_up().any() and not views.down().any()
            views.gate_up()[:] = drawn[layer]["gate_up"][expert]
            views.down()[:] = drawn[layer]["down"][expert]

        pack_experts(path, **SHAPE, dtype="f32", fill=fill_by_views)
        first = path.read_bytes()
        pack_experts(path, **SHAPE, dtype="f32", fill=filler(drawn, "f32"))
        assert path.read_bytes()[4096:] == first[4096:]

    def test_a_kept_view_is_no_danger(self, path):
        kept = []
        pack_experts(path, **SHAPE, dtype="f32", fill=lambda layer, expert, views: kept.append(views.down()))
        gc.collect()
        kept[0][:] = 7

    def test_what_the_file_says(self, path):
        before = time.time_ns()
        packed(path, dtype="bf16", bias=True, layout="interleaved")
        info = expert_file_info(str(path))
        assert (info.layers, info.experts, info.hidden, info.width) == (3, 5, 24, 16)
        assert (info.dtype, info.layout, info.transposed, info.bias) == ("bf16", "interleaved", False, True)
        assert info.path == str(path) and info.nbytes == path.stat().st_size
        assert before <= info.created_ns <= time.time_ns() and 0 < info.pack_seconds < 60
        assert abs(info.created - datetime.datetime.now().astimezone()) < datetime.timedelta(minutes=1)
        assert a_store(path).file == info == expert_file_info(os.fsencode(path))

    def test_progress(self, path):
        told = []
        packed(path, progress=lambda done, total: told.append((done, total)))
        assert [done for done, _ in told] == [told[0][0] * n for n in range(1, 16)]
        assert told[-1][0] == told[-1][1] == path.stat().st_size - 4096

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_a_function_that_fails_leaves_no_file(self, path, error):
        def fail(layer, expert, views):
            if (layer, expert) == (1, 2):
                raise error

        with pytest.raises(error):
            pack_experts(path, **SHAPE, fill=fail)
        assert list(path.parent.iterdir()) == []
        drawn = packed(path)
        with pytest.raises(error):
            pack_experts(path, **SHAPE, fill=fail)
        assert expert_file_info(path).dtype == "f32" and drawn  # the old file

    @pytest.mark.parametrize("changes, says", [
        ({"layers": 0}, "layers: expected from 1"), ({"hidden": 12}, "hidden: expected a multiple of 8"),
        ({"dtype": "f64"}, "dtype: expected f32, f16 or bf16, given 'f64'"),
        ({"layout": "mixed"}, "layout"), ({"fill": None}, "fill: expected a function, unless checkpoint"),
        ({"checkpoint": "x"}, "fill: expected a function, unless checkpoint is set, given both"),
        ({"names": {}}, "names: expected None, because fill is set, given {}"),
        ({"first_layer": 2}, "first_layer: expected None, because fill is set, given 2"),
    ])
    def test_refuses(self, path, changes, says):
        with pytest.raises(InvalidArgument, match=says):
            pack_experts(path, **{**SHAPE, "fill": lambda *_: None, **changes})
        assert not path.exists()

    def test_refuses_arrays(self, path):
        up, down = np.zeros((32, 24), "f"), np.zeros((24, 16), "f")
        for arguments, says in (((up.T, down), r"gate_up: expected a NumPy array .* \(32, 24\)"),
                                ((up, down.astype("d")), "down: expected a NumPy array"),
                                ((up, down, up[0]), "gate_up_bias: expected None, because the experts")):
            with pytest.raises(InvalidArgument, match=says):
                pack_experts(path, **SHAPE, dtype="f32", fill=lambda layer, expert, views: views.set(*arguments))

    def test_a_folder_that_does_not_exist(self, tmp_path):
        with pytest.raises(OSError, match="nowhere"):
            packed(tmp_path / "nowhere" / "file")


class TestCheckpoint:
    NAMES = {"gate": "model.layers.{layer}.experts.{expert}.gate", "up": "model.layers.{layer}.experts.{expert}.up",
             "down": "model.layers.{layer}.experts.{expert}.down"}

    def save(self, folder, drawn, first_layer=0):
        tensors = {}
        for layer, parts in enumerate(drawn, first_layer):
            for expert, (gate_up, down) in enumerate(zip(parts["gate_up"], parts["down"], strict=True)):
                start = f"model.layers.{layer}.experts.{expert}."
                half = len(gate_up) // 2
                tensors |= {start + "gate": gate_up[:half], start + "up": gate_up[half:], start + "down": down}
        weights.save(folder / "model.safetensors", tensors, shard_bytes=9000)
        return folder

    @pytest.mark.parametrize("first_layer", [0, 2])
    @pytest.mark.parametrize("opened", [False, True])
    def test_separate_tensors(self, path, tmp_path, opened, first_layer):
        drawn, other = draw_weights(1, **SHAPE), tmp_path / "other"
        folder = self.save(tmp_path, drawn, first_layer)
        told = []
        pack_experts(path, **SHAPE, dtype="f32", checkpoint=weights.open(folder) if opened else folder,
                     names=self.NAMES, first_layer=first_layer, progress=lambda *now: told.append(now))
        pack_experts(other, **SHAPE, dtype="f32", fill=filler(drawn, "f32"))
        assert path.read_bytes()[4096:] == other.read_bytes()[4096:]
        assert told[-1][0] == told[-1][1] == path.stat().st_size - 4096

    def test_merged_tensors(self, path, tmp_path):
        drawn, other = draw_weights(1, bias=True, **SHAPE), tmp_path / "other"
        weights.save(tmp_path / "model.safetensors",
                     {f"{layer}.{part}": each for layer, parts in enumerate(drawn) for part, each in parts.items()})
        pack_experts(path, **SHAPE, dtype="f32", bias=True, checkpoint=tmp_path,
                     names={part: f"{{layer}}.{part}" for part in drawn[0]})
        pack_experts(other, **SHAPE, dtype="f32", bias=True, fill=filler(drawn, "f32"))
        assert path.read_bytes()[4096:] == other.read_bytes()[4096:]

    @pytest.mark.parametrize("changes, says", [
        ({"names": None}, "names: expected a mapping with the names of tensors"),
        ({"names": {"gate": "a"}}, "names.up: expected a name, as gate has one"),
        ({"names": {**NAMES, "gate_up": "b"}}, "names.gate: expected none, because gate_up is set"),
        ({"names": {**NAMES, "gates": "b"}}, "names: expected gate_up, .* as keys, given 'gates'"),
        ({"names": {**NAMES, "down": "no.{layer}.{expert}"}}, "no.0.0"), ({"layers": 4}, "layers.3.experts.0"),
        ({"hidden": 32}, r"tensor .*layers.0.experts.0.gate.*F32 \(16, 32\), given F32 \(16, 24\)"),
        ({"dtype": "bf16"}, "given F32"), ({"first_layer": -1}, "first_layer"),
        ({"bias": True}, "names.gate_up_bias"),
    ])
    def test_refuses(self, path, tmp_path, changes, says):
        folder = self.save(tmp_path, draw_weights(1, **SHAPE))
        with pytest.raises(InvalidArgument, match=says):
            pack_experts(path, **{**SHAPE, "dtype": "f32", "checkpoint": folder, "names": self.NAMES, **changes})
        assert not path.exists()

    def test_no_checkpoint(self, path, tmp_path):
        with pytest.raises(OSError, match="nowhere"):
            pack_experts(path, **SHAPE, checkpoint=tmp_path / "nowhere", names=self.NAMES)

    def test_a_progress_function_that_fails(self, path, tmp_path):
        def fail(*_):
            raise ValueError("enough")

        with pytest.raises(ValueError, match="enough"):
            pack_experts(path, **SHAPE, dtype="f32", checkpoint=self.save(tmp_path, draw_weights(1, **SHAPE)),
                         names=self.NAMES, progress=fail)


class TestStore:
    def test_its_memory_is_exact(self, path):
        packed(path)
        block = (path.stat().st_size - 4096) // 15
        for host_bytes, slots in ((2 * block, 2), (3 * block - 1, 2), (15 * block, 15), ("1GiB", 15)):
            store = a_store(path, host_bytes=host_bytes)
            assert (store.slots, store.host_bytes) == (slots, slots * block)
        assert repr(store) == "<penstock.DiskExpertStore of 3 layers of 5 experts, f32, room for 15 in host memory>"
        assert store.least_bytes(pinned=3) > store.least_bytes() > 0

    @pytest.mark.parametrize("slots", [2, 4, 15])
    @pytest.mark.parametrize("options", [{}, {"policy": "lru"}, {"direct": False}])
    def test_has_the_bits_of_moe(self, path, slots, options):
        drawn = packed(path, 2)
        store = a_store(path, slots, **options)
        with StreamedExperts(store, device="cpu", prefetch="previous", records=3) as experts:
            for turn, tokens in enumerate((1, 9, 33, 0, 2, 1, 9)):
                x, ids, w = draw_tokens(turn, tokens)
                out = experts.forward(turn % 3, x, ids, w)
                np.testing.assert_array_equal(out, penstock.moe(x, ids=ids, weights=w, **drawn[turn % 3]))
            experts.synchronize()
            counted, records = experts.statistics, experts.records
        assert counted.calls == 6 and counted.needed == counted.hits + counted.late + counted.misses
        assert counted.misses > 0 and counted.bytes == store.statistics.bytes > 0
        assert len(records) == 3 and records[-1].tokens == 9
        assert (store.statistics.evicted > 0) == (slots < 15) and store.statistics.failed == 0
        assert store.statistics.misses * (store.host_bytes // slots) == store.statistics.bytes

    def test_prefetch(self, path):
        packed(path)
        store = a_store(path, 15)
        with StreamedExperts(store, device="cpu") as experts:
            experts.prefetch(1, [0, 4])
            experts.prefetch(2, np.array([[2]]))
            assert store.statistics.misses == 3
            with pytest.raises(InvalidArgument, match="experts: expected experts from 0 to 4"):
                experts.prefetch(1, [5])

    def test_several_users_of_one_store(self, path):
        drawn = packed(path, 3)
        store = a_store(path, 15)
        x, ids, w = draw_tokens(1)
        both = [StreamedExperts(store, device="cpu") for _ in range(2)]
        del store
        gc.collect()
        for experts in both:
            np.testing.assert_array_equal(experts.forward(1, x, ids, w),
                                          penstock.moe(x, ids=ids, weights=w, **drawn[1]))
        assert both[1].statistics.misses == 0

    @pytest.mark.parametrize("options, says", [
        ({"host_bytes": 100}, "host_bytes: expected at least .* 2 slots of"),
        ({"host_bytes": "much"}, "host_bytes"), ({"host_bytes": None}, "host_bytes: expected a number of bytes"),
        ({"policy": "random"}, "policy: expected 'frequency' or 'lru', given 'random'"), ({"device": "tpu"}, "device"),
    ])
    def test_refuses(self, path, options, says):
        packed(path)
        with pytest.raises(InvalidArgument, match=says):
            a_store(path, **options)

    def test_refuses_files(self, path):
        with pytest.raises(FileNotFoundError, match="model.experts"):
            a_store(path)
        path.write_bytes(bytes(5000))
        for open_file in (a_store, expert_file_info):
            with pytest.raises(InvalidArgument, match="model.experts: expected a file of packed experts"):
                open_file(path)
        packed(path)
        path.write_bytes(path.read_bytes()[:-1])
        for open_file in (a_store, expert_file_info):
            with pytest.raises(InvalidArgument, match="model.experts: expected a file of .* bytes"):
                open_file(path)

    def test_a_file_that_changes_while_it_is_used(self, path):
        """An error at the next call; what is in the cache still works."""
        drawn = packed(path)
        call = draw_tokens(1, choices=5)
        with StreamedExperts(a_store(path, 5), device="cpu") as experts:
            wanted = experts.forward(0, *call)
            content = path.read_bytes()
            with open(path, "r+b") as file:
                file.truncate(5000)
            with pytest.raises(OSError, match="model.experts"):
                experts.forward(1, *call)
                experts.check()
            np.testing.assert_array_equal(
                wanted, penstock.moe(call[0], ids=call[1], weights=call[2], **drawn[0]))
        path.write_bytes(content)
        with StreamedExperts(a_store(path, 5), device="cpu") as experts:
            np.testing.assert_array_equal(experts.forward(0, *call), wanted)

    def test_closed(self, path):
        packed(path)
        experts = StreamedExperts(a_store(path), device="cpu")
        experts.close()
        with pytest.raises(penstock.ExpertsClosed):
            experts.forward(0, *draw_tokens())


def test_ctrl_c_while_packing(interrupted, path):
    """The function is interrupted, and no file stays."""
    assert interrupted(f"""
import time, penstock
def fill(layer, expert, views):
    if (layer, expert) == (0, 3):
        print("ready", flush=True)
    time.sleep(0.05)
try:
    penstock.pack_experts({str(path)!r}, layers=9, experts=99, hidden=8, width=8, fill=fill)
except KeyboardInterrupt:
    print("interrupted")
""") == "interrupted\n"
    assert list(path.parent.iterdir()) == []


def test_nothing_is_left_behind_at_exit(python, path):
    packed(path)
    assert python(f"""
        import numpy as np, penstock
        store = penstock.DiskExpertStore({str(path)!r}, host_bytes="1MiB", device="cpu")
        experts = penstock.StreamedExperts(store, device="cpu")
        experts.prefetch(0, [0, 1, 2])
        experts.forward(1, np.ones((2, 24), "f"), np.zeros((2, 1), "i4"), np.ones((2, 1), "f"))
    """).stderr == ""
