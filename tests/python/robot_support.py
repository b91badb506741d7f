"""Datasets laid out as LeRobot does, what is in them, and the loader over them."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock import robot

pytest.importorskip("pyarrow", reason="pyarrow is not installed here")

ROOT = Path(__file__).resolve().parents[2]
LAYOUTS = ["v2.0", "v2.1", "v3.0"]
FPS = 30
FRONT = "observation.images.front"
FEATURES = {
    "observation.state": {"dtype": "float32", "shape": [3], "names": {"motors": ["a", "b", "c"]}},
    "action": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
    "observation.gripper": {"dtype": "bool", "shape": [1], "names": None},
    "observation.pose": {"dtype": "float64", "shape": [7], "names": None},
    FRONT: {"dtype": "video", "shape": [480, 640, 3], "names": ["height", "width", "channel"],
            "info": {"video.fps": 30.0}},
}


def load_writer():
    """The example makes datasets; it is the writer of these tests, too."""
    spec = importlib.util.spec_from_file_location("example", ROOT / "examples/python/robot.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example.write_dataset


write_plain = load_writer()


def write_dataset(folder, layout, episodes, features, **more):
    """With the statistics of the layout, and 2.0, which the example does not write.

    2.1 brought statistics of every episode instead of all together; in 2.0 a video's rate may stand
    under another key.
    """
    write_plain(folder, "v2.1" if layout == "v2.0" else layout, episodes, features, **more)
    meta = folder / "meta"
    if layout == "v2.1":
        lines = [{"episode_index": number, "stats": statistics([episode])}
                 for number, episode in enumerate(episodes)]
        (meta / "episodes_stats.jsonl").write_text("\n".join(map(json.dumps, lines)))
        return
    (meta / "stats.json").write_text(json.dumps(statistics(episodes)))
    if layout == "v2.0":
        info = json.loads((meta / "info.json").read_text()) | {"codebase_version": "v2.0"}
        for told in info["features"].values():
            if "info" in told:
                told["video_info"] = told.pop("info")
        (meta / "info.json").write_text(json.dumps(info))


def statistics(episodes):
    times = np.concatenate([episode["timestamp"] for episode in episodes])
    return {"timestamp": {"min": float(times.min(initial=0)), "max": float(times.max(initial=0))}}


def an_episode(length, seed=0, jitter=0.0):
    random = np.random.default_rng([seed, length])
    times = np.arange(length) / FPS + jitter * np.sort(random.random(length))
    pose = random.normal(size=(length, 7))
    pose[:, 3:] /= np.linalg.norm(pose[:, 3:], axis=1, keepdims=True)
    return {"observation.state": random.random((length, 3)).astype("f4"),
            "action": random.random((length, 2)).astype("f4"),
            "observation.gripper": random.random(length) > 0.5,
            "observation.pose": pose,
            "timestamp": (times - (times[0] if length else 0)).astype("f4")}


def loader(dataset, columns="action", **more):
    return robot.Loader(dataset, columns, **({"at": 50, "steps": 10, "batch": 2, "device": "cpu",
                                              "like": "numpy"} | more))


def linear(episode, name, at):
    times, values = episode["timestamp"].astype("f8"), episode[name]
    return np.stack([np.interp(at, times, column) for column in values.T], axis=-1)


def previous(episode, name, at):
    place = np.searchsorted(episode["timestamp"].astype("f8"), at, "right") - 1
    return episode[name][np.maximum(place, 0)]


def stored(at):
    return np.asarray(at).astype("f4").astype("f8")


EVERYTHING = {
    "apart": ({"action": "linear", "observation.gripper": "previous", FRONT: "nearest"}, {}),
    "rows": (["observation.state", "action"], {"fused": True}),
    "bf16": (["action", "observation.state"], {"dtype": "bf16", "like": "penstock"}),
    "longest": (["action"], {"steps": None}),
}


def bits(array):
    """As bytes on the host, whosever they are."""
    if isinstance(array, np.ndarray):
        return array.tobytes()
    if not isinstance(array, penstock.Array):  # a tensor of torch
        return array.cpu().numpy().tobytes()
    room = penstock.empty(array.nbytes, "u8")
    stream = penstock.Stream(array.place if array.place.startswith("cuda") else "cpu")
    penstock.copy(room, array, stream)
    stream.synchronize()
    return bytes(room)


def passes(dataset, what, count=2, **more):
    columns, told = EVERYTHING[what]
    one = loader(dataset, columns, **({"steps": 40, "prefetch": 2} | told | more))
    return [(list(batch.episodes), bits(batch.valid),
             {name: bits(array) for name, array in batch.items()})
            for _ in range(count) for batch in one]
