import numpy
import penstock

chunk, chunks = 1 << 20, 16  # elements per chunk, number of chunks
data = penstock.empty((chunks, chunk), "f32")  # page-locked; data.numpy() shares its memory
data.numpy()[:] = numpy.arange(chunks)[:, None]
result = penstock.empty((chunks, chunk), "f32")

pipeline = penstock.Pipeline(depth=4)  # on the first GPU, else the CPU
work = pipeline.ring("work", shape=chunk, dtype="f32", memory="device")


def upload(item):
    penstock.copy(item.slot(work), data[item.index], item.stream)


def compute(item):
    penstock.transform.scale(item.slot(work), 3, out=item.slot(work), stream=item.stream)


def download(item):
    penstock.copy(result[item.index], item.slot(work), item.stream)


up = pipeline.stage("upload", upload, uses=work, engine="upload")
done = pipeline.stage("compute", compute, after=up, uses=work)
pipeline.stage("download", download, after=done, uses=work, engine="download")

timeline = penstock.Timeline()  # shown as a chart in a notebook
report = pipeline.run(chunks, recorder=timeline)
busy = sum(map(timeline.busy_seconds, ("upload", "compute", "download")))
print(f"{report.items} chunks in {report.seconds * 1e3:.1f} ms, {busy * 1e3:.1f} ms of work")
assert (result.numpy() == 3 * data.numpy()).all()
