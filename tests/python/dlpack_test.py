"""DLPack's fine print, with producers and consumers made by hand."""

import ctypes

import numpy as np
import pytest

import penstock

CPU, CUDA, CUDA_HOST = 1, 2, 3


class Producer:
    """Shares a NumPy array, and notes how it was asked."""

    def __init__(self, array, device=(CPU, 0), versions=True):
        self.array, self.device, self.versions = array, device, versions
        self.asked = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        if not self.versions and "max_version" in keywords:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**keywords)


@pytest.fixture
def ones():
    return np.ones(4, np.float32)


def test_a_producer_that_knows_versions_is_asked_for_one(ones):
    producer = Producer(ones)
    penstock.iterate(producer, rounds=3)
    assert all(asked == {"max_version": (1, 1)} for asked in producer.asked)


def test_an_older_producer_is_asked_again_without(ones):
    producer = Producer(ones, versions=False)
    penstock.iterate(producer, rounds=3)
    assert producer.asked[-1] == {}


def test_a_producer_is_let_go_of(ones):
    import sys

    before = sys.getrefcount(ones)
    for _ in range(10):
        penstock.iterate(Producer(ones))
        with pytest.raises(ValueError):
            penstock.copy(Producer(ones[::2]), Producer(ones[:2]))
    assert sys.getrefcount(ones) == before


def test_an_error_of_the_producer_comes_through(ones):
    class Broken(Producer):
        def __dlpack__(self, **keywords):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        penstock.iterate(Broken(ones))


def test_what_is_no_capsule_is_refused(ones):
    class Odd(Producer):
        def __dlpack__(self, **keywords):
            return 7

    with pytest.raises(ValueError, match="^x: expected a DLPack capsule.*given 7"):
        penstock.iterate(Odd(ones))


def test_memory_of_unknown_devices_is_refused(ones):
    with pytest.raises(ValueError, match="^x: expected memory of the CPU or of a CUDA GPU, given"):
        penstock.iterate(Producer(ones, device=(10, 0)))


def test_what_has_no_memory_is_a_type_error():
    with pytest.raises(TypeError, match="^x: expected an array .DLPack., given int"):
        penstock.iterate(3)
    with pytest.raises(TypeError, match="^src: expected an array .DLPack or a buffer., given int"):
        penstock.copy(np.zeros(3), 3)


@pytest.mark.parametrize("array, given", [
    (np.ones(4, np.int16), "i16"),
    (np.ones(4, np.uint64), "u64"),
    (np.ones(4, np.complex64), "type 64"),
    (np.array(["a"]), "DLPack"),
    (np.array([object()]), "DLPack"),
])
def test_unsupported_element_types_name_the_argument(array, given):
    with pytest.raises(ValueError, match=f"^x: expected .*given .*{given}"):
        penstock.iterate(array)


def test_read_only_arrays_are_no_outputs(ones):
    out = np.ones(4, np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="^out: expected a writable array"):
        penstock.iterate(ones, out=out)
    with pytest.raises(ValueError, match="^dst: expected writable contiguous memory"):
        penstock.copy(out, ones)
    with pytest.raises(ValueError, match="^dst: expected writable contiguous memory"):
        penstock.copy(b"1234", b"5678")
    penstock.iterate(out, out=ones)  # but they are inputs


def test_strides_are_refused_where_bytes_are_wanted():
    array = np.zeros((4, 4), np.float32)
    with pytest.raises(ValueError, match="^src: expected contiguous memory"):
        penstock.copy(np.zeros(8, np.float32), array[:, ::2])
    with pytest.raises(ValueError, match=r"^src: expected a contiguous array, given .*\(4, 2\)"):
        penstock.copy(np.zeros(8, np.float32), Producer(array[:, ::2]))


def test_sizes_must_agree():
    with pytest.raises(ValueError, match="^dst: expected 8 bytes, the size of src, given 4 bytes"):
        penstock.copy(np.zeros(4, np.uint8), np.zeros(8, np.uint8))


class Capsule:
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]


@pytest.mark.parametrize("max_version, name", [
    (None, b"dltensor"), ((0, 8), b"dltensor"), ((1, 0), b"dltensor_versioned"),
    ((1, 1), b"dltensor_versioned"), ((2, 0), b"dltensor_versioned")])
def test_as_a_producer_it_answers_in_the_consumers_version(max_version, name):
    capsule = penstock.empty(3).__dlpack__(max_version=max_version)
    assert Capsule.name(capsule) == name


def test_an_unused_capsule_lets_go():
    import gc
    import sys

    room = penstock.empty(3)
    before = sys.getrefcount(room)
    for max_version in (None, (1, 0)):
        capsule = room.__dlpack__(max_version=max_version)
        assert sys.getrefcount(room) == before + 1
        del capsule
        gc.collect()
        assert sys.getrefcount(room) == before


def test_the_cpu_has_no_streams_to_wait_for():
    room = penstock.empty(3)
    assert room.__dlpack_device__() == (CPU, 0)
    room.__dlpack__(stream=None)
    room.__dlpack__(stream=-1)
    for stream in (0, 1, 2, 4096):
        with pytest.raises(ValueError, match="^stream: expected None"):
            room.__dlpack__(stream=stream)


def test_neither_copied_nor_moved():
    room = penstock.empty(3)
    room.__dlpack__(copy=False, dl_device=(CPU, 0))
    with pytest.raises(BufferError, match="^copy"):
        room.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="^dl_device"):
        room.__dlpack__(dl_device=(CUDA, 0))


def test_numpy_takes_it_with_its_own_keywords():
    room = penstock.empty((2, 2), "i32")
    assert np.from_dlpack(room, device="cpu", copy=False).shape == (2, 2)


def test_page_locked_memory_of_others_is_the_hosts(ones):
    penstock.iterate(Producer(ones, device=(CPU, 0)), rounds=2)
    class Pinned(Producer):
        def __dlpack_device__(self):
            return (CUDA_HOST, 0)
    penstock.iterate(Pinned(ones), rounds=2)
