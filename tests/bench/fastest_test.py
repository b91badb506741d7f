"""The fastest of several ways: chosen once, among those that are right."""

import pytest

from penstock.bench import Absent, BenchError, Peer, _cub, _fastest
from penstock.bench._fastest import Fastest

torch = pytest.importorskip("torch", reason="torch is not installed here")


@pytest.fixture(autouse=True)
def times(monkeypatch):
    """The time of every way, given by its name; and which ways were timed."""
    timed = []

    def times_us(calls, inputs, outputs, cache):
        timed.append(list(calls))
        return {name: float(name.split()[-1]) for name in calls}

    monkeypatch.setattr(_fastest, "times_us", times_us)
    return timed


def plus(number):
    return lambda x, out: out.copy_(x + number)


def refuse(x, out):
    raise BenchError("not supported")


def test_the_fastest_right_way_is_kept(times):
    found = []

    def ways():
        found.append(1)
        return {"first 5": plus(1), "slow 9": plus(1), "wrong 1": plus(1.1), "fails 2": refuse,
                "skips 3": lambda x, out: None, "close 4": plus(1.0001)}

    fastest, out = Fastest(ways, 1e-3, 1000), torch.zeros(3)
    fastest(torch.ones(3), out)
    assert fastest.chosen == "close 4" and out.tolist() == pytest.approx([2.0001] * 3)
    assert times == [["first 5", "slow 9", "close 4"]]
    fastest(torch.zeros(3), out)
    assert len(times) == len(found) == 1 and out[0] == pytest.approx(1.0001)


def test_the_first_way_must_succeed():
    with pytest.raises(BenchError, match="not supported"):
        Fastest(lambda: {"first 1": refuse, "other 2": plus(1)}, 0, 0)(torch.ones(1), torch.ones(1))


def test_cub_says_what_it_needs(monkeypatch, tmp_path):
    arguments = "scale", ["bf16", "bf16"], {"factor": 2.0}, 0.1, 1000
    monkeypatch.delenv("PENSTOCK_CUB", raising=False)
    assert "libpenstock_cub.so" in _cub.peer(*arguments).reason
    monkeypatch.setenv("PENSTOCK_CUB", str(tmp_path / "none.so"))
    missing = _cub.peer(*arguments)
    assert isinstance(missing, Absent) and "none.so" in missing.reason


class Library:
    """Multiplies by `a` on elements; has no function for vectors."""

    def __init__(self, known):
        self.known = {each.data_ptr(): each for each in known}

    def penstock_cub_version(self):
        return b"3.0.1"

    def penstock_cub_transform(self, function, types, vectors, given, out, elements, a, b, stream):
        assert (function, types, elements.value, b.value) == (b"scale", b"f32 f32", 3, 1)
        if vectors.value:
            return -1
        self.known[out.value].copy_(a.value * self.known[given[0]])
        return 0


def test_cub_is_called_with_addresses(monkeypatch):
    x, out = torch.arange(3.0), torch.empty(3)
    monkeypatch.setenv("PENSTOCK_CUB", "it.so")
    monkeypatch.setattr(_cub, "_library", lambda path: Library([x, out]))
    monkeypatch.setattr(torch.cuda, "current_stream",
                        lambda device: type("Stream", (), {"cuda_stream": 0}))
    monkeypatch.setattr(_fastest, "times_us", lambda calls, *others: dict.fromkeys(calls, 1.0))
    peer = _cub.peer("scale", ["f32", "f32"], {"factor": 2.5}, 0.0, 0)
    assert isinstance(peer, Peer) and peer.version == "3.0.1"
    peer.call([x], out)
    assert out.tolist() == [0, 2.5, 5]
    assert _fastest.chosen({"CUB": peer, "other": Absent("")}) == {"chosen": {"CUB": "elements"}}
    assert _fastest.chosen({"other": Peer("1", plus(1))}) == {}
