"""Times a transformers model whose experts Penstock computes, next to transformers' own experts.

    python3 bench/moe_transformers.py --output bench/results/moe_transformers.json

The model has the shapes of Qwen3-30B-A3B, 8 of its layers and random weights. Two things are timed,
in interleaved runs: the experts of all layers alone, with the inputs that they had in a forward pass,
and whole forward passes. The floor of a forward pass is the same with experts that return zeros: the
rest of the model, and the host's launches.
"""

import argparse
import copy
import sys
import time
from pathlib import Path

import penstock
import penstock.hf
import torch
import transformers
from penstock.bench import _results
from penstock.bench._clock import clock_for
from penstock.bench._floor import Floor
from penstock.bench._timing import Plan, Samples, Turns
from transformers.integrations.moe import ExpertsInterface

PEERS = ("eager", "batched_mm", "grouped_mm")
CONTEXT = 128  # tokens in the cache before a decoding step
WARM_UP, SAMPLES, SEED = 3, 15, 1
SHAPES = {"hidden_size": 2048, "moe_intermediate_size": 768, "num_experts": 128,
          "num_experts_per_tok": 8, "norm_topk_prob": True, "num_hidden_layers": 8,
          "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936}
SMALL = {"hidden_size": 64, "moe_intermediate_size": 48, "num_experts": 16, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96}
PREFILL, DECODE = 4096, (1, 8, 64)


def zeros(module, hidden_states, top_k_index, top_k_weights):
    return torch.zeros_like(hidden_states)


def build(shapes, device):
    """The model, its weights drawn on the device itself."""
    config = transformers.Qwen3MoeConfig(**shapes, intermediate_size=4 * shapes["hidden_size"])
    torch.manual_seed(SEED)
    with torch.device(device):
        model = transformers.Qwen3MoeForCausalLM._from_config(config, dtype=torch.bfloat16).eval()
        for each in model.parameters():
            if each.dim() > 1:
                each.normal_(0, 0.02)
    return model


def select(model, implementation):
    model.config._experts_implementation = implementation


def forward_of(model, batch, tokens, context):
    """A forward pass with `context` tokens in the cache, as a function that can be repeated."""
    device = model.device
    ids = torch.randint(0, model.config.vocab_size, (batch, context + tokens), device=device)
    options = {"logits_to_keep": 1, "use_cache": context > 0}
    if not context:
        return lambda: model(ids, **options)
    select(model, "penstock")
    cache = model(ids[:, :context], **options).past_key_values

    def decode():
        result = model(ids[:, context:], past_key_values=cache, **options)
        cache.crop(-tokens)
        return result

    return decode


def inputs_of(model, forward):
    """The experts of every layer, with their arguments in a forward pass."""
    found, hooks = [], []
    for layer in model.model.layers:
        hooks.append(layer.mlp.experts.register_forward_pre_hook(
            lambda module, arguments: found.append((module, arguments))))
    select(model, "penstock")
    forward()
    for hook in hooks:
        hook.remove()
    return found


def errors_of(experts, arguments):
    """The largest errors of our result and of eager's, against eager in f32, and the largest value."""
    exact = copy.deepcopy(experts).float()
    exact.config._experts_implementation = "eager"
    x, ids, weights = arguments
    wanted = exact(x.float(), ids, weights.float())
    errors = []
    for implementation in ("penstock", "eager"):
        experts.config._experts_implementation = implementation
        errors.append((experts(*arguments).float() - wanted).abs().max().item())
    return *errors, wanted.abs().max().item()


def timed(runs, clock, on_gpu):
    """Interleaved runs of all implementations. Those that run out of memory are returned by name."""
    failed = []
    for name, run in list(runs.items()):
        try:
            for _ in range(WARM_UP):
                run()
        except torch.OutOfMemoryError:
            failed.append(name)
            del runs[name]
            torch.cuda.empty_cache()
    samples, turns = {name: Samples() for name in runs}, Turns(Plan(), time.sleep)
    for _ in range(SAMPLES):
        for name in turns.of(runs):
            taken = clock.call_time(runs[name])
            samples[name].call_us.append(taken.call_us)
            samples[name].host_us.append(taken.host_us)
            turns.rest(taken.call_us)
            gpu = clock.gpu_us(runs[name], taken.host_us) if on_gpu else None
            if gpu is not None:
                samples[name].gpu_us.append(gpu)
    return samples, failed


def with_each(model, names, run):
    """One function per implementation that selects it and runs."""
    def of(name):
        def selected():
            select(model, name)
            run()

        return selected

    return {name: of(name) for name in names}


def case_of(name, samples, failed, check, params):
    peers = {peer: samples[peer].summary() for peer in PEERS if peer in samples}
    return {"case": name, "params": params, **check, "ours": samples["penstock"].summary(),
            "peer": peers, "metrics": {"out_of_memory": failed}}


def measure(model, clock, name, batch, tokens, context):
    """The two cases of a shape: the experts alone, and the whole forward pass."""
    forward = forward_of(model, batch, tokens, context)
    inputs = inputs_of(model, forward)
    error, eagers, largest = errors_of(*inputs[0])
    tolerance = 2 * eagers + torch.finfo(torch.bfloat16).eps * largest
    check = {"correct": error <= tolerance, "max_error": error, "tolerance": tolerance}
    params = {"batch": batch, "tokens": tokens, "context": context,
              "layers": model.config.num_hidden_layers}

    def experts():
        for module, arguments in inputs:
            module(*arguments)

    alone = timed(with_each(model, ("penstock", *PEERS), experts), clock, on_gpu=True)
    whole = timed(with_each(model, ("penstock", "zeros", *PEERS), forward), clock, on_gpu=False)
    floor = Floor()
    for us in whole[0]["zeros"].call_us:
        floor.add(us)
    return [case_of(f"experts, {name}", *alone, check, params),
            {**case_of(f"forward, {name}", *whole, check, params), "floor_us": floor.us}]


def show(case):
    times = {"Penstock": case["ours"], **case["peer"]}
    text = ", ".join(f"{name} {each.get('gpu_us', each['call_us']) / 1e3:.3f} ms"
                     for name, each in times.items())
    floor = f"; floor {case['floor_us'] / 1e3:.3f} ms" if "floor_us" in case else ""
    failed = case["metrics"]["out_of_memory"]
    print(f"{case['case']}: {text}{floor}"
          + (f"; out of memory: {', '.join(failed)}" if failed else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="results file to write")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: the first GPU if there is one)")
    parser.add_argument("--quick", action="store_true", help="a small model, to try the program")
    args = parser.parse_args()
    if args.output:
        _results.check_writable("--output", args.output)
    device = penstock.Device(args.device)
    clock = clock_for(device)
    penstock.hf.register()
    ExpertsInterface.register("zeros", zeros)
    version = f"of transformers {transformers.__version__}"
    results = _results.document("moe_transformers", device, penstock.limits(device, quick=True), SEED,
                                {name: version for name in PEERS})
    where = "cpu" if device.kind == "cpu" else f"cuda:{device.index}"
    prefill = 64 if args.quick else PREFILL
    cases = [(f"prefill 1x{prefill}", 1, prefill, 0)]
    cases += [(f"decode, batch {batch}", batch, 1, CONTEXT) for batch in DECODE]
    with torch.inference_mode():
        model = build({**SHAPES, **SMALL} if args.quick else SHAPES, where)
        for description in cases:
            for case in measure(model, clock, *description):
                show(case)
                if not case["correct"]:
                    sys.exit(f"{case['case']}: largest error {case['max_error']}, expected at most "
                             f"{case['tolerance']}")
                _results.add(results, case)
    if args.output:
        _results.write(args.output, results)


if __name__ == "__main__":
    main()
