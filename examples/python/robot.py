"""A robot's episodes, at irregular times, as batches on one clock; with --picture drawn, too."""

import argparse
import json
import tempfile
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet
from penstock import robot

FPS = 30


def write_dataset(folder, layout, episodes, features, episodes_per_file=3):
    """Episodes (arrays by column, `timestamp` among them) laid out as LeRobot's 2.1 or 3.0."""
    numbers = {"timestamp": "float32", "frame_index": "int64", "episode_index": "int64",
               "index": "int64", "task_index": "int64"}
    features = features | {name: {"dtype": kind, "shape": [1], "names": None}
                           for name, kind in numbers.items() if name not in features}
    file_name = ("data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}" if layout == "v2.1"
                 else "data/chunk-{chunk_index:03d}/file-{file_index:03d}") + ".parquet"
    video_name = ("videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
                  if layout == "v2.1" else
                  "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4")
    per_file = 1 if layout == "v2.1" else episodes_per_file
    meta, files, row = [], {}, 0
    for number, episode in enumerate(episodes):
        length = len(episode["timestamp"])
        episode = episode | {"frame_index": numpy.arange(length),
                             "episode_index": numpy.full(length, number),
                             "index": numpy.arange(row, row + length),
                             "task_index": numpy.zeros(length, int)}
        path = file_name.format(episode_chunk=0, episode_index=number, chunk_index=0,
                                file_index=number // per_file)
        files.setdefault(path, []).append(as_table(episode, features))
        first = sum(entry["length"] for entry in meta[number // per_file * per_file:])
        meta.append({"episode_index": number, "tasks": ["reach"], "length": length,
                     "dataset_from_index": row, "dataset_to_index": row + length,
                     "data/chunk_index": 0, "data/file_index": number // per_file})
        for name in (name for name in features if features[name]["dtype"] == "video"):
            meta[-1] |= {f"videos/{name}/chunk_index": 0,
                         f"videos/{name}/file_index": number // per_file,
                         f"videos/{name}/from_timestamp": first / FPS}
        row += length
    for path, tables in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.concat_tables(tables), folder / path)
    (folder / "meta/episodes/chunk-000").mkdir(parents=True)
    (folder / "meta/info.json").write_text(json.dumps({
        "codebase_version": layout, "fps": FPS, "chunks_size": 1000, "data_path": file_name,
        "video_path": video_name, "features": features}))
    if layout == "v2.1":
        lines = [{key: entry[key] for key in ("episode_index", "tasks", "length")} for entry in meta]
        (folder / "meta/episodes.jsonl").write_text("\n".join(map(json.dumps, lines)))
        (folder / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "reach"}\n')
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(meta),
                                    folder / "meta/episodes/chunk-000/file-000.parquet")
        pyarrow.parquet.write_table(pyarrow.table({"task_index": [0], "task": ["reach"]}),
                                    folder / "meta/tasks.parquet")


def as_table(episode, features):
    """Rows of several numbers are lists of one length."""
    columns = {}
    for name, values in episode.items():
        values = numpy.asarray(values, features[name]["dtype"])
        flat = pyarrow.array(values.reshape(-1))
        columns[name] = (flat if values.ndim == 1 else
                         pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1]))
    return pyarrow.table(columns)


def reach(times, phase):
    """Where two joints are at these times."""
    return numpy.stack([numpy.sin(2 * times + phase), numpy.cos(3 * times + phase)], axis=1)


def make_episodes(count, seed=1):
    """Samples that come late, or not at all."""
    random = numpy.random.default_rng(seed)
    for number in range(count):
        frames = numpy.arange(60 + 15 * number)
        times = (frames + random.uniform(0, 0.8, len(frames))) / FPS
        times = times[random.random(len(times)) > 0.2]
        times -= times[0]
        yield {"observation.state": reach(times, number), "timestamp": times,
               "observation.gripper": numpy.sin(times) > 0.5}


FEATURES = {
    "observation.state": {"dtype": "float32", "shape": [2], "names": ["shoulder", "elbow"]},
    "observation.gripper": {"dtype": "bool", "shape": [1], "names": None},
    "observation.images.front": {"dtype": "video", "shape": [480, 640, 3], "names": None},
}


def draw(path, raw, batch, place):
    import matplotlib

    matplotlib.use("Agg")  # needs no screen
    from matplotlib import pyplot

    times, end = batch.times, int(numpy.sum(numpy.asarray(batch.valid[place])))
    figure, (joints, gripper) = pyplot.subplots(2, 1, figsize=(9, 5), sharex=True,
                                                height_ratios=[3, 1], layout="constrained")
    for joint, name in enumerate(FEATURES["observation.state"]["names"]):
        line, = joints.plot(times, numpy.asarray(batch["observation.state"])[place, :, joint],
                            ".-", markersize=3, linewidth=0.8, label=f"{name} at 50 Hz, linear")
        joints.plot(raw["timestamp"], raw["observation.state"][:, joint], "o", color=line.get_color(),
                    fillstyle="none", label=f"{name}, samples")
    gripper.plot(times, numpy.asarray(batch["observation.gripper"])[place, :, 0], ".-", markersize=3,
                 linewidth=0.8, drawstyle="steps-post", label="gripper at 50 Hz, previous")
    gripper.plot(raw["timestamp"], raw["observation.gripper"], "o", color="C0", fillstyle="none",
                 label="gripper, samples")
    gripper.set_xlabel("seconds since the episode began; grey: not valid, the last sample is held")
    for axes in (joints, gripper):
        axes.axvspan(times[min(end, len(times) - 1)], times[-1], color="0.9")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, fontsize="small")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", help="PNG file to draw (needs matplotlib)")
    picture = parser.parse_args().picture
    for layout in ("v2.1", "v3.0"):
        with tempfile.TemporaryDirectory() as folder:
            write_dataset(Path(folder), layout, list(make_episodes(8)), FEATURES)
            dataset = robot.Dataset(folder)
            # Each column in its own way, a video by the numbers of its frames. Decoding, uploading
            # and resampling go on while a batch is worked on; without `device` on the first GPU.
            loader = robot.Loader(dataset, {"observation.state": "linear",
                                            "observation.gripper": "previous",
                                            "observation.images.front": "nearest"},
                                  at=50, seconds=3, batch=4, device="cpu", like="numpy")
            for batch in loader:
                truth = numpy.stack([reach(batch.times, episode) for episode in batch.episodes])
                error = numpy.abs(batch["observation.state"] - truth)[batch.valid].max()
                print(f"{layout}: episodes {batch.episodes}, {batch['observation.state'].shape}, "
                      f"{error:.3f} from the truth")
                assert error < 0.1
                assert (batch["observation.images.front"][:, 0] == [
                    dataset.video(episode, "observation.images.front")[1:]
                    for episode in batch.episodes]).all()
                if picture and 1 in batch.episodes:
                    draw(picture, dataset.read(1), batch, list(batch.episodes).index(1))


if __name__ == "__main__":
    main()
