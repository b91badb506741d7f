"""Times the steps of a generation whose key-value cache grows, in several ways to grow it.

    python3 bench/kv_cache.py --output bench/results/kv_cache.json

A step appends a row to every layer, computes attention over all rows, and waits, as a generation does
for its token. All ways do the same with the same kernels and differ in where the rows are:

- ours: penstock.KVCache, whose memory a thread maps ahead;
- allocated: tensors for all rows, allocated beforehand, in the same layout; what growth without any
  cost would take;
- concatenated: torch.cat at every step, as transformers' DynamicCache does;
- reallocated: larger tensors every 64 rows, by torch's caching allocator, and a copy;
- cudaMalloc: the same, and then torch.cuda.empty_cache(): cudaFree of the old tensors and of all other
  memory that the allocator caches. The next tensors, also temporary ones, are made by cudaMalloc.

Every generation begins with nothing in torch's caching allocator, as in a new process.

Meanwhile another stream has small kernels queued, with events between them. The longest time between
two events shows whether growth stalls it. If the host is late and the queue runs dry, the time until the
next kernel is not counted: it shows the host's wait, as the longest step does.
"""

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path

import penstock
import torch
from penstock.bench import _results
from penstock.bench._timing import Plan, Turns

STEPS, ROUNDS, WARM_UP, SEED = 2000, 9, 50, 1  # steps that are counted
LAYERS, SEQUENCES, HEADS_Q, HEADS, DIM, PROMPT = 4, 8, 32, 8, 128, 1024
GROW_BY = 64  # rows, of the ways that allocate larger tensors
DISTINCT = 61  # different new rows
SIDE_US, SIDE_LEAD = 30, 400  # duration of a kernel of the other stream, and how many are queued
SETTLE_STEPS = 20  # before those that are counted, until both streams are busy
STEP_US = 100, 300  # the steps that the sizes are meant to give


class Allocated:
    """Tensors for all rows, in the order of KVCache: position by position."""

    def __init__(self, shape, dtype, device):
        sequences, rows, *others = shape
        self.tensors = [tuple(torch.empty((rows, sequences, *others), dtype=dtype, device=device)
                              .transpose(0, 1) for _ in "kv") for _ in range(LAYERS)]

    def append(self, layer, length, k, v):
        keys, values = self.tensors[layer]
        penstock.append_kv(k, v, keys, values, length=length)
        end = length + k.shape[1]
        return keys[:, :end], values[:, :end]

    def waits(self):
        return 0

    def mapped(self):
        return 0


class Ours(Allocated):
    options = {}

    def __init__(self, shape, dtype, device):
        self.cache = penstock.KVCache(layers=LAYERS, sequences=shape[0], heads=shape[2], dim=shape[3],
                                      capacity=shape[1], dtype=dtype, device=str(device),
                                      **self.options)
        self.tensors = [tuple(torch.from_dlpack(each) for each in (self.cache.whole_k(layer),
                                                                  self.cache.whole_v(layer)))
                        for layer in range(LAYERS)]

    def append(self, layer, length, k, v):
        self.cache.append(layer, k, v)
        keys, values = self.tensors[layer]
        end = length + k.shape[1]
        return keys[:, :end], values[:, :end]

    def waits(self):
        return self.cache.waits

    def mapped(self):
        return self.cache.mapped_bytes


class Concatenated(Allocated):
    def __init__(self, shape, dtype, device):
        empty = torch.empty((shape[0], 0, *shape[2:]), dtype=dtype, device=device)
        self.tensors = [(empty, empty)] * LAYERS

    def append(self, layer, length, k, v):
        keys, values = self.tensors[layer]
        self.tensors[layer] = torch.cat((keys, k), 1), torch.cat((values, v), 1)
        return self.tensors[layer]


class Reallocated(Allocated):
    """Larger tensors every GROW_BY rows. torch's caching allocator keeps the old ones."""

    def __init__(self, shape, dtype, device):
        super().__init__((shape[0], 0, *shape[2:]), dtype, device)

    def append(self, layer, length, k, v):
        end = length + k.shape[1]
        old = self.tensors[layer][0].shape[1]
        if end > old:
            rows = -(-end // GROW_BY) * GROW_BY
            larger = []
            for each in self.tensors[layer]:
                made = each.new_empty((rows, each.shape[0], *each.shape[2:])).transpose(0, 1)
                made[:, :old] = each
                larger.append(made)
            self.tensors[layer] = tuple(larger)
            del each
            self.free_old()
        return super().append(layer, length, k, v)

    def free_old(self):
        pass


class CudaMalloc(Reallocated):
    def free_old(self):
        torch.cuda.empty_cache()


WAYS = {"ours": Ours, "allocated": Allocated, "concatenated": Concatenated,
        "reallocated": Reallocated, "cudaMalloc": CudaMalloc}


class SideStream:
    """Another stream on the GPU that never runs out of small kernels."""

    def __init__(self):
        self.stream = torch.cuda.Stream()
        self.cycles, self.events = 1_000_000, []
        self.dry = set()  # the events before which the queue had run dry
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(2):
            begin.record()
            torch.cuda._sleep(self.cycles)
            end.record()
            end.synchronize()
        self.cycles = int(self.cycles * SIDE_US / (begin.elapsed_time(end) * 1e3))
        self.done = 0

    def fill_up(self):
        while self.done < len(self.events) and self.events[self.done].query():
            self.done += 1
        if self.done == len(self.events):
            self.dry.add(self.done)
        with torch.cuda.stream(self.stream):
            while len(self.events) - self.done < SIDE_LEAD:
                torch.cuda._sleep(self.cycles)
                event = torch.cuda.Event(enable_timing=True)
                event.record()
                self.events.append(event)

    def gaps(self):
        """The longest time between two events, in microseconds, and how often the queue ran dry."""
        self.stream.synchronize()
        gaps = [self.events[at - 1].elapsed_time(self.events[at]) * 1e3
                for at in range(1, len(self.events)) if at not in self.dry]
        dry = len(self.dry - {0})
        self.events, self.dry, self.done = [], set(), 0
        return max(gaps), dry


class NoSideStream:
    """On the CPU."""

    def fill_up(self):
        pass

    def gaps(self):
        return None, 0


def synchronizer(device):
    if device.type == "cpu":
        return lambda: None
    event = torch.cuda.Event()

    def wait():
        event.record()
        event.synchronize()

    return wait


def generation(way, steps, rows, q, out, side):
    """The figures of one generation, in microseconds. The first SETTLE_STEPS are not counted."""
    steps += SETTLE_STEPS
    torch.cuda.empty_cache()
    sequences, prompt = q.shape[0], rows["prompt"]
    shape = (sequences, prompt.shape[2] + steps, *prompt.shape[3:])
    wait = synchronizer(q.device)
    cache = WAYS[way](shape, q.dtype, q.device)
    for layer in range(LAYERS):
        cache.append(layer, 0, *prompt)
    wait()
    taken, mapped, waits = [], [cache.mapped()], cache.waits()
    gc.collect()
    gc.disable()  # a full collection takes as long as hundreds of steps
    for step in range(steps):
        side.fill_up()
        k, v = rows["new"][step % DISTINCT]
        begin = time.perf_counter()
        for layer in range(LAYERS):
            keys, values = cache.append(layer, prompt.shape[2] + step, k, v)
            penstock.attention(q, keys, values, out=out)
        wait()
        taken.append((time.perf_counter() - begin) * 1e6)
        mapped.append(cache.mapped())
    gc.enable()
    gap, dry = side.gaps()
    wanted = [torch.cat([prompt[part], *(rows["new"][step % DISTINCT][part]
                                         for step in range(steps))], 1) for part in (0, 1)]
    if not all(torch.equal(has[:, :shape[1]], want)
               for layer in range(LAYERS) for has, want in zip(cache.tensors[layer], wanted)):
        sys.exit(f"{way}: expected the rows that were appended, got others")
    counted = taken[SETTLE_STEPS:]
    figures = {"p50": quantile(counted, 0.5), "p99": quantile(counted, 0.99), "longest": max(counted),
               "waits": cache.waits() - waits, "dry": dry, **beside_growth(taken, mapped)}
    return figures if gap is None else figures | {"gap": gap}


def beside_growth(taken, mapped):
    """The steps while the thread mapped memory: how many, their median, and the 99th percentile of
    all others. A block counts as mapped when that is done, so the step before counts, too."""
    grown = [after != before for before, after in zip(mapped, mapped[1:])]
    beside = [now or soon for now, soon in zip(grown, [*grown[1:], False])][SETTLE_STEPS:]
    with_growth, without = ([us for us, grows in zip(taken[SETTLE_STEPS:], beside) if grows == wanted]
                            for wanted in (True, False))
    found = {"growing": len(with_growth), "p99_without": quantile(without, 0.99)}
    return found | ({"p50_growing": quantile(with_growth, 0.5)} if with_growth else {})


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def measured(steps, rows, q, out, side):
    """The figures of every way, in interleaved runs: medians over the rounds. Also the 99th percentiles
    of ours relative to those with an allocated cache, round by round."""
    found = {way: [] for way in WAYS}
    for way in WAYS:
        generation(way, WARM_UP, rows, q, out, NoSideStream())
    turns = Turns(Plan(), time.sleep)
    for _ in range(ROUNDS):
        for way in turns.of(WAYS):
            found[way].append(generation(way, steps, rows, q, out, side))
    medians = {way: {name: round(statistics.median(each[name] for each in rounds if name in each), 3)
                     for name in dict.fromkeys(key for each in rounds for key in each)}
               for way, rounds in found.items()}
    return medians, [round(ours["p99"] / allocated["p99"], 4)
                     for ours, allocated in zip(found["ours"], found["allocated"])]


def beside_allocated(figures, by_round):
    """What growth costs the slow steps, and whether the steps are as long as they are meant to be."""
    median = figures["allocated"]["p50"]
    return {"p99_over_allocated": round(figures["ours"]["p99"] / figures["allocated"]["p99"], 4),
            "p99_over_allocated_by_round": by_round, "median_step_us": median,
            "median_step_in_range": STEP_US[0] <= median <= STEP_US[1]}


def case_of(name, key, figures, beside, params):
    ours = figures["ours"]
    return {"case": name, "params": params, "correct": True, "max_error": 0, "tolerance": 0,
            "ours": {"call_us": ours[key]},
            "peer": {way: {"call_us": each[key]} for way, each in figures.items() if way != "ours"},
            "metrics": {**beside, "steps_that_waited": ours["waits"], "steps_while_mapping": ours["growing"],
                        "median_while_mapping_us": ours.get("p50_growing"),
                        "p99_of_others_us": ours["p99_without"],
                        "other_stream_ran_dry": {way: each["dry"] for way, each in figures.items()}}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="results file to write")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: the first GPU if there is one)")
    parser.add_argument("--quick", action="store_true", help="few small steps, to try the program")
    parser.add_argument("--ahead", type=int, help="rows that KVCache maps ahead")
    parser.add_argument("--block-bytes", type=int, help="bytes that KVCache maps at a time")
    args = parser.parse_args()
    if args.output:
        _results.check_writable("--output", args.output)
    Ours.options = {name: value for name, value in (("ahead", args.ahead),
                                                    ("block_bytes", args.block_bytes)) if value}
    device = penstock.Device(args.device)
    where = torch.device("cpu" if device.kind == "cpu" else f"cuda:{device.index}")
    on_gpu = where.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(where)
    sequences, prompt, steps = (2, 16, 100) if args.quick else (SEQUENCES, PROMPT, STEPS)
    params = {"steps": steps, "layers": LAYERS, "sequences": sequences, "heads_q": HEADS_Q,
              "heads": HEADS, "dim": DIM, "prompt": prompt, "dtype": "bf16"}
    torch.manual_seed(SEED)

    def draw(*shape):
        return torch.randn(shape, device=where).bfloat16()

    q = draw(sequences, 1, HEADS_Q, DIM)
    rows = {"prompt": draw(2, sequences, prompt, HEADS, DIM),
            "new": draw(DISTINCT, 2, sequences, 1, HEADS, DIM)}
    results = _results.document("kv_cache", device, penstock.limits(device, quick=True), SEED,
                                {way: f"torch {torch.__version__}" for way in WAYS if way != "ours"})
    with torch.inference_mode():
        figures, by_round = measured(steps, rows, q, torch.empty_like(q),
                                     SideStream() if on_gpu else NoSideStream())
    beside = beside_allocated(figures, by_round)
    names = {"step, median": "p50", "step, 99th percentile": "p99", "step, longest": "longest"}
    if on_gpu:
        names["other stream, longest gap"] = "gap"
    for name, key in names.items():
        results["cases"].append(case_of(name, key, figures, beside, params))
        print(f"{name}: " + ", ".join(f"{way} {each[key]:.1f} us" for way, each in figures.items()),
              flush=True)
    print("; ".join(f"{name} {value}" for name, value in results["cases"][0]["metrics"].items()))
    if not beside["median_step_in_range"]:
        print("The median step with an allocated cache takes {:.1f} us, which is not between {} and {} us "
              "as intended.".format(beside["median_step_us"], *STEP_US))
    if args.output:
        _results.write(args.output, results)


if __name__ == "__main__":
    main()
