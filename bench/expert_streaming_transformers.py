"""Times a transformers model whose experts do not fit on the GPU, next to accelerate's offloading.

    python3 bench/expert_streaming_transformers.py --output bench/results/expert_streaming_transformers.json

The model has the shapes of Qwen3-30B-A3B, 8 of its layers and random weights. Its experts stay in host
memory (penstock.hf.offload); on the GPU a cache of limited size is emptied before every run, so that each
expert that a layer needs is copied. Two things are timed: the experts of all layers alone, and whole forward
passes. First the model runs with all of its experts on the GPU, and is freed. Then torch's memory pool is
limited, so that pool and cache together are smaller than the model, and the streamed model and accelerate's
are timed in interleaved runs. accelerate dispatches the model as from_pretrained(device_map="auto") does, with as
much GPU memory for weights as the streamed model has. The floor is the time in which the bytes of the needed
experts cross the link, by the best of several plain copies in the same run.

Long runs are repeated less often: all samples of a run take ten seconds at most, unless a single one takes
longer.
"""

import argparse
import copy
import gc
import sys
import time
from pathlib import Path

import accelerate
import penstock
import penstock.hf
import torch
import transformers
from moe_transformers import CONTEXT, SEED, SHAPES, SMALL, build, inputs_of, select, zeros
from penstock.bench import _results
from penstock.bench._clock import clock_for
from penstock.bench._floor import Floor
from penstock.bench._timing import Plan, Samples, Turns
from transformers.integrations.moe import ExpertsInterface

MOST_SAMPLES, MOST_SECONDS = 7, 10  # of each run, besides the first
CASES = (("prefill 1x4096", 1, 4096, 0), ("prefill 4x4096", 4, 4096, 0),
         ("decode, batch 1", 1, 1, CONTEXT), ("decode, batch 8", 8, 1, CONTEXT),
         ("decode, batch 64", 64, 1, CONTEXT))
QUICK_CASES = (("prefill 1x64", 1, 64, 0), ("decode, batch 2", 2, 1, 16))
COPIES, COPIED_BYTES = 8, 1 << 30  # of the passes that measure the link


def bytes_without_experts(model):
    experts = {id(each) for layer in model.model.layers for each in layer.mlp.experts.parameters()}
    return sum(each.nbytes for each in [*model.parameters(), *model.buffers()]
               if id(each) not in experts)


def link_rate(store, device):
    """Bytes per second of the best plain copy from the store's memory; None on the CPU."""
    if device.kind == "cpu":
        return None
    total = store.layers * store.experts
    count = min(total, max(1, COPIED_BYTES * total // store.nbytes))
    parts = [store._bytes(*divmod(block, store.experts), "gate_up") for block in range(count)]
    there = penstock.empty((count, parts[0].nbytes), "u8", memory="device", device=device)
    stream, best = penstock.Stream(device), 0.0
    for _ in range(COPIES):
        stream.synchronize()
        begin = time.perf_counter()
        for number, part in enumerate(parts):
            penstock.copy(there[number], part, stream)
        stream.synchronize()
        best = max(best, there.nbytes / (time.perf_counter() - begin))
    return best


def passes(model, ids, context):
    """A forward pass with `context` tokens in the cache, as a function that can be repeated."""
    options = {"logits_to_keep": 1, "use_cache": context > 0}
    if not context:
        return lambda: model(ids, **options).logits
    cache = model(ids[:, :context], **options).past_key_values

    def decode():
        logits = model(ids[:, context:], past_key_values=cache, **options).logits
        cache.crop(context - ids.shape[1])
        return logits

    return decode


def timed(runs, clock, before, on_gpu=False):
    """Interleaved runs of all, after one that is not counted; `before` is called before each of them, and is not
    timed. `on_gpu` also takes the GPU's time without the host's, where there is a GPU."""
    samples, turns = {name: Samples() for name in runs}, Turns(Plan(), time.sleep)
    for number in range(1 + MOST_SAMPLES):
        for name in turns.of(runs):
            known = samples[name]
            if sum(known.call_us) + min(known.call_us, default=0) > MOST_SECONDS * 1e6:
                continue
            before()
            taken = clock.call_time(runs[name])
            turns.rest(taken.call_us)
            if number == 0:
                continue
            known.call_us.append(taken.call_us)
            known.host_us.append(taken.host_us)
            gpu = clock.gpu_us(runs[name], taken.host_us) if on_gpu else None
            if gpu is not None:
                known.gpu_us.append(gpu)
    return samples


def needed_by(streamed, run):
    """The experts that a run needs, starting from an empty cache."""
    streamed.clear()
    before = streamed.statistics.needed
    run()
    streamed.synchronize()
    return streamed.statistics.needed - before


def ids_of(model, batch, tokens):
    draw = torch.Generator().manual_seed(SEED)
    return torch.randint(0, model.config.vocab_size, (batch, tokens), generator=draw)


def without_experts(model, run):
    def selected():
        select(model, "zeros")
        run()
        select(model, "penstock")

    return selected


def layers_of(model, run):
    """The experts of all layers, with the inputs that they have in a run."""
    inputs = inputs_of(model, run)

    def layers():
        for module, arguments in inputs:
            module(*arguments)

    return layers


def nothing():
    pass


class Resident:
    """What a shape takes with all experts on the GPU, and what it gives."""

    def __init__(self, model, where, clock, batch, tokens, context):
        run = passes(model, ids_of(model, batch, context + tokens).to(where), context)
        self.logits = run().float().cpu()
        alone = timed({"resident": layers_of(model, run)}, clock, nothing)
        whole = timed({"resident": run}, clock, nothing)
        zeros = timed({"zeros": without_experts(model, run)}, clock, nothing, on_gpu=True)["zeros"]
        self.others = {"without_experts_call_us": best(zeros.call_us)}
        if zeros.gpu_us:
            self.others["without_experts_gpu_us"] = best(zeros.gpu_us)
        self.alone, self.whole = alone["resident"], whole["resident"]


def best(times):
    floor = Floor()
    for us in times:
        floor.add(us)
    return round(floor.us, 3)


def limit_torch(device, most):
    """Makes torch fail where it would take more memory of the device, after it has returned what is free."""
    gc.collect()
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info(device.index)
    torch.cuda.set_per_process_memory_fraction(min(1.0, most / total), device.index)
    torch.cuda.reset_peak_memory_stats(device.index)


class Models:
    """The same model twice: streamed, and dispatched by accelerate, with as much memory for weights."""

    def __init__(self, on_host, where, device, cache):
        self.where = where
        size = bytes_without_experts(on_host) + cache
        self.streamed = penstock.hf.offload(copy.deepcopy(on_host), gpu_memory=size, device=device,
                                            progress=False)
        select(on_host, "grouped_mm")
        self.accelerate = dispatched(on_host, where, size)

    @property
    def experts(self):
        return self.streamed.streamed_experts


def dispatched(model, where, nbytes):
    """As from_pretrained(device_map="auto") dispatches it: what does not fit stays in host memory, and is copied
    whenever it is used."""
    return accelerate.dispatch_model(model, places_of(model, where, nbytes), force_hooks=True,
                                     skip_keys=model._skip_keys_device_placement)


def places_of(model, where, nbytes):
    on_gpu = {where.index: nbytes} if where.type == "cuda" else {}
    return accelerate.infer_auto_device_map(model, max_memory={**on_gpu, "cpu": sys.maxsize},
                                            no_split_module_classes=model._no_split_modules)


def measure(models, known, clock, rate, name, batch, tokens, context):
    """The two cases of a shape: the experts alone, and the whole forward pass."""
    ids = ids_of(models.streamed, batch, context + tokens).to(models.where)
    streamed, offloaded = (passes(model, ids, context) for model in (models.streamed, models.accelerate))
    got, wanted = streamed().float().cpu(), known.logits
    error, largest = (got - wanted).abs().max().item(), wanted.abs().max().item()
    tolerance = torch.finfo(torch.bfloat16).eps * largest
    check = {"correct": error <= tolerance, "max_error": error, "tolerance": tolerance,
             "params": {"batch": batch, "tokens": tokens, "context": context,
                        "layers": models.streamed.config.num_hidden_layers}}
    needed = needed_by(models.experts, streamed) if rate else 0
    moved = needed * models.experts.store.nbytes // (models.experts.store.layers
                                                     * models.experts.store.experts)
    metrics = {"experts_needed": needed, "bytes_needed": moved, "bitwise": torch.equal(got, wanted)}
    floor = {"floor_us": moved / rate * 1e6} if rate else {}

    def empty_cache():
        models.experts.clear()

    alone = timed({"ours": layers_of(models.streamed, streamed)}, clock, empty_cache)
    yield case_of(f"experts, {name}", alone | {"resident": known.alone}, check, floor, metrics)
    whole = timed({"ours": streamed, "accelerate": offloaded}, clock, empty_cache)
    case = case_of(f"forward, {name}", whole | {"resident": known.whole}, check, floor,
                   metrics | known.others)
    compare(case, context > 0)
    yield case


def compare(case, decodes):
    """Adds what a forward pass takes relative to accelerate's, and to what can be expected of it. Experts
    of a prompt are known beforehand, so their copies can overlap with everything else; those of single
    tokens are known only after the router, and the GPU's time of everything else adds to that of the link."""
    ours, peer, metrics = case["ours"]["call_us"], case["peer"], case["metrics"]
    accelerated, resident = peer["accelerate"]["call_us"], peer["resident"]["call_us"]
    metrics |= {"over_accelerate": round(ours / accelerated, 4),
                "speedup_over_accelerate": round(accelerated / ours, 2),
                "over_resident": round(ours / resident, 4)}
    if "floor_us" not in case:
        return
    larger = max(resident, case["floor_us"])
    both = case["floor_us"] + metrics["without_experts_gpu_us"]
    metrics |= {"over_resident_or_link": round(ours / larger, 4),
                "over_link_and_others": round(ours / both, 4)}
    case["yardstick"], case["yardstick_us"] = (
        ("in decode, the link's time and the GPU's of everything but the experts", both) if decodes else
        ("in prefill, the larger of the resident time and the link's", larger))


def case_of(name, samples, check, floor, metrics):
    times = {kind: each.summary() for kind, each in samples.items()}
    ours = times.pop("ours")
    if floor:
        metrics = metrics | {"share_of_link": round(floor["floor_us"] / ours["call_us"], 4)}
    return {"case": name, **check, **floor, "ours": ours, "peer": times, "metrics": metrics}


def show(case):
    times = {"streamed": case["ours"], **case["peer"]}
    text = ", ".join(f"{name} {each['call_us'] / 1e3:.3f} ms" for name, each in times.items())
    floor = f"; link {case['floor_us'] / 1e3:.3f} ms" if "floor_us" in case else ""
    same = "" if case["metrics"]["bitwise"] else "; bits differ from resident"
    if "over_accelerate" in case["metrics"]:
        text += f"; {case['metrics']['speedup_over_accelerate']:.2f} x as fast as accelerate"
    if "yardstick" in case:
        text += f"; {case['ours']['call_us'] / case['yardstick_us']:.3f} x {case['yardstick']}"
    print(f"{case['case']}: {text}{floor}{same}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="results file to write")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: the first GPU if there is one)")
    parser.add_argument("--cache", type=int, default=1 << 30, metavar="BYTES",
                        help="GPU memory for experts (default: 1 GiB)")
    parser.add_argument("--memory", type=int, default=10 << 30, metavar="BYTES",
                        help="GPU memory for both models: the cache, and torch's pool (default: 10 GiB)")
    parser.add_argument("--quick", action="store_true",
                        help="a small model without a limit on torch's pool, to try the program")
    args = parser.parse_args()
    if args.output:
        _results.check_writable("--output", args.output)
    device = penstock.Device(args.device)
    clock = clock_for(device)
    penstock.hf.register()
    ExpertsInterface.register("zeros", zeros)
    where = torch.device("cpu" if device.kind == "cpu" else f"cuda:{device.index}")
    results = _results.document("expert_streaming_transformers", device,
                                penstock.limits(device, quick=True), SEED, {
                                    "accelerate": f"accelerate {accelerate.__version__}, device_map=\"auto\", "
                                                  f"transformers {transformers.__version__}",
                                    "resident": "all experts on the GPU, computed by penstock.moe; "
                                                "measured before, and freed"})
    cases = QUICK_CASES if args.quick else CASES
    with torch.inference_mode():
        resident = build({**SHAPES, **SMALL} if args.quick else SHAPES, where)
        select(resident, "penstock")
        known = [Resident(resident, where, clock, *shape) for _, *shape in cases]
        on_host = resident.to("cpu")
        size = sum(each.nbytes for each in on_host.parameters())
        limited = device.kind != "cpu" and not args.quick
        if limited:
            if not args.cache < args.memory < size:
                sys.exit(f"--memory: expected more than the {args.cache} bytes of the cache, and less than "
                         f"the {size} bytes of the model, given {args.memory}")
            limit_torch(device, args.memory - args.cache)
        models = Models(on_host, where, device, args.cache)
        rate = link_rate(models.experts.store, device)
        for description, resident_times in zip(cases, known):
            for case in measure(models, resident_times, clock, rate, *description):
                if limited:
                    case["params"] |= {"gpu_memory": args.memory, "model_bytes": size}
                    case["metrics"]["peak_bytes"] = (
                        args.cache + torch.cuda.max_memory_reserved(device.index))
                show(case)
                if not case["correct"]:
                    sys.exit(f"{case['case']}: largest error {case['max_error']}, expected at most "
                             f"{case['tolerance']}")
                _results.add(results, case)
    if args.output:
        _results.write(args.output, results)


if __name__ == "__main__":
    main()
