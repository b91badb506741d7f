"""The loader beside torch, and on a GPU."""

import numpy as np
import pytest

import penstock
from robot_support import EVERYTHING, LAYOUTS, linear, loader, passes, stored

pytestmark = pytest.mark.usefixtures("no_thread_stays")


class TestTorch:
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
    def test_tensors(self, make, torch, dtype):
        dataset, episodes = make(lengths=[20])
        (batch,) = loader(dataset, dtype=getattr(torch, dtype), like=None, steps=15)
        assert batch["action"].dtype == getattr(torch, dtype) and batch.valid.dtype == torch.bool
        np.testing.assert_allclose(batch["action"][0].double().numpy(), linear(
            episodes[0], "action", stored(batch.times)), atol=1e-2)

    def test_in_a_data_loader(self, make, torch):
        dataset, _ = make()
        given = torch.utils.data.DataLoader(loader(dataset, like="torch").torch(), batch_size=None)
        assert isinstance(given.dataset, torch.utils.data.IterableDataset) and len(given) == 3
        for _ in range(2):
            batches = list(given)
            assert [list(batch.episodes) for batch in batches] == [[0, 1], [2, 3], [4]]
            assert batches[0]["action"].shape == (2, 10, 2) and batches[0].valid.shape == (2, 10)

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_a_worker_is_told(self, make, torch, python, method):
        dataset, _ = make()
        done = python(f"""
            from torch.utils import data
            from penstock import robot
            data._utils.MP_STATUS_CHECK_INTERVAL = 0.1  # s, that a worker has to end
            loader = robot.Loader({str(dataset.path)!r}, "action", at=50, steps=10, batch=2,
                                  device="cpu")
            given = data.DataLoader(loader.torch(), batch_size=None, num_workers=1,
                                    multiprocessing_context={method!r})
            try:
                next(iter(given))
            except NotImplementedError as error:
                print(error)
        """, timeout=120)
        assert "a robot.Loader has its own threads" in done.stdout
        assert "num_workers=0" in done.stdout


def test_torch_where_it_is_missing(make, python):
    dataset, _ = make()
    done = python(f"""
        import sys
        sys.modules["torch"] = None
        from penstock import robot
        loader = robot.Loader({str(dataset.path)!r}, "action", at=50, steps=10, batch=1, device="cpu",
                              like="numpy")
        try:
            loader.torch()
        except NotImplementedError as error:
            print(error)
    """)
    assert done.stdout == "torch() needs torch: pip install torch\n"


@pytest.mark.gpu
@pytest.mark.skipif(bool(penstock.Device.why_no_gpu()), reason="no GPU")
class TestGpu:
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("what", EVERYTHING)
    def test_the_same_bits_as_on_the_cpu(self, make, layout, what):
        dataset, _ = make(layout, lengths=[20, 7, 33, 12, 5] * 6)
        assert passes(dataset, what, device="cuda", like="penstock") == passes(dataset, what)

    @pytest.mark.parametrize("what", ["apart", "rows", "longest"])
    def test_tensors(self, make, torch, what):
        dataset, _ = make(lengths=[20, 7, 33, 12, 5] * 6)
        assert passes(dataset, what, device="cuda", like="torch") == passes(dataset, what)
        columns, told = EVERYTHING[what]
        batch = next(iter(loader(dataset, columns, device="cuda", **(told | {"like": None}))))
        assert all(isinstance(array, torch.Tensor) and array.is_cuda for array in batch.values())

    def test_memory_is_used_again_only_when_it_was_read(self, make, torch):
        """The caller's work on a batch is still under way when the batch is dropped."""
        dataset, _ = make(lengths=[20] * 64)
        expected = [batch["action"].copy() for batch in loader(dataset)]
        got = []
        for batch in loader(dataset, device="cuda", like="torch"):
            torch.cuda._sleep(5_000_000)
            got.append(batch["action"].clone())
        assert all((a.cpu().numpy() == b).all() for a, b in zip(got, expected, strict=True))

    def test_numpy_is_refused(self, make):
        dataset, _ = make()
        with pytest.raises(ValueError, match="^like: expected 'torch' or 'penstock' on cuda:0"):
            loader(dataset, device="cuda")
