"""Times a transformers model whose experts Penstock computes, next to transformers' own experts.

    python3 bench/moe_transformers.py --output bench/results/moe_transformers.json

The model has the shapes of Qwen3-30B-A3B, 8 of its layers and random weights. Two things are timed,
in interleaved runs: the experts of all layers alone, with the inputs that they had in a forward pass,
and whole forward passes. The floor of a forward pass is the same with experts that return zeros: the
rest of the model, and the host's launches. In cases called "padded", the experts have a width that is
no multiple of 8, so that every call pads the weights; only the experts are timed, and without
grouped_mm, whose rows must begin at multiples of 16 bytes.

Results are checked against those of the same model in f32 by the eager implementation: ours may be
twice as far from them as eager's, and a rounding. In a forward pass these are the logits of the last
tokens, with the same experts per token in all implementations: rounding may decide which are chosen,
and another expert changes the logits by much more than a rounding.
"""

import argparse
import contextlib
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

PADDED_PEERS = ("eager", "batched_mm")
PEERS = (*PADDED_PEERS, "grouped_mm")
CONTEXT = 128  # tokens in the cache before a decoding step
SEED = 1
PLAN, FEWEST_SAMPLES = Plan(samples=100), 15
SHAPES = {"hidden_size": 2048, "moe_intermediate_size": 768, "num_experts": 128,
          "num_experts_per_tok": 8, "norm_topk_prob": True, "num_hidden_layers": 8,
          "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936}
PADDED = {"moe_intermediate_size": 2044, "num_hidden_layers": 2}
SMALL = {"hidden_size": 64, "moe_intermediate_size": 48, "num_experts": 16, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96}
SMALL_PADDED = {"moe_intermediate_size": 44}
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
                each.normal_(0, each.shape[-1]**-0.5)  # so that the experts matter, whatever the sizes are
    return model


def select(model, implementation):
    model.config._experts_implementation = implementation


def prompt_of(model, batch, tokens, context):
    """Random tokens, and a cache of `context` tokens before them."""
    ids = torch.randint(0, model.config.vocab_size, (batch, context + tokens), device=model.device)
    if not context:
        return ids, None
    select(model, "penstock")
    return ids[:, context:], model(ids[:, :context], logits_to_keep=1).past_key_values


def in_f32(cache):
    if cache is None:
        return None
    wide = copy.deepcopy(cache)
    for layer in wide.layers:
        layer.keys, layer.values = layer.keys.float(), layer.values.float()
    return wide


def forward_of(model, ids, cache):
    """A forward pass, as a function that can be repeated; it returns the logits of the last tokens."""
    def forward():
        result = model(ids, past_key_values=cache, use_cache=cache is not None, logits_to_keep=1)
        if cache is not None:
            cache.crop(-ids.shape[1])
        return result.logits

    return forward


@contextlib.contextmanager
def hooks_of(model, hook):
    """Calls `hook` with the module and its arguments before the experts of every layer."""
    hooks = [layer.mlp.experts.register_forward_pre_hook(hook) for layer in model.model.layers]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()


def inputs_of(model, forward, implementation="penstock"):
    """The experts of every layer, with their arguments in a forward pass."""
    found = []
    select(model, implementation)
    with hooks_of(model, lambda module, arguments: found.append((module, arguments))):
        forward()
    return found


def logits_of(model, implementation, forward, inputs):
    """Of a forward pass in which tokens have the experts and weights of `inputs`."""
    routes = iter([arguments[1:] for _, arguments in inputs])
    select(model, implementation)
    with hooks_of(model, lambda module, arguments: (arguments[0], *next(routes))):
        return forward()


def judged(ours, eagers, wanted):
    """Whether ours is at most twice as far from the result in f32 as eager's, and a rounding."""
    error, own = ((each.float() - wanted).abs().max().item() for each in (ours, eagers))
    tolerance = 2 * own + torch.finfo(torch.bfloat16).eps * wanted.abs().max().item()
    return {"correct": error <= tolerance, "max_error": error, "tolerance": tolerance}


def check_of_experts(model, exact, arguments):
    """The experts of the first layer; `exact` is the same model in f32."""
    def result(of, *given):
        return of.model.layers[0].mlp.experts(*given)

    select(exact, "eager")
    x, ids, weights = arguments
    wanted, results = result(exact, x.float(), ids, weights.float()), []
    for implementation in ("penstock", "eager"):
        select(model, implementation)
        results.append(result(model, *arguments))
    return judged(*results, wanted)


def check_of_forward(model, exact, ids, cache, inputs):
    """The logits of the last tokens; `exact` is the same model in f32."""
    forward = forward_of(model, ids, cache)
    wanted = logits_of(exact, "eager", forward_of(exact, ids, in_f32(cache)), inputs)
    return judged(*(logits_of(model, each, forward, inputs) for each in ("penstock", "eager")), wanted)


def timed(runs, clock, plan, on_gpu):
    """Interleaved runs of all implementations. Those that run out of memory are returned by name."""
    failed = []
    for name, run in list(runs.items()):
        try:
            for _ in range(plan.warm_up):
                run()
        except torch.OutOfMemoryError:
            failed.append(name)
            del runs[name]
            torch.cuda.empty_cache()
    samples, turns = {name: Samples() for name in runs}, Turns(plan, time.sleep)
    begin = time.monotonic()
    for number in range(plan.samples):
        if number >= FEWEST_SAMPLES and time.monotonic() - begin > plan.seconds:
            break
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


def measure(model, exact, clock, plan, name, shape, padded):
    """The cases of a shape: the experts alone, and the whole forward pass, unless the experts are padded.
    `exact` is the same model in f32."""
    batch, tokens, context = shape
    ids, cache = prompt_of(model, *shape)
    forward = forward_of(model, ids, cache)
    inputs = inputs_of(model, forward)
    params = {"batch": batch, "tokens": tokens, "context": context,
              "layers": model.config.num_hidden_layers, "width": model.config.moe_intermediate_size}

    def experts():
        for module, arguments in inputs:
            module(*arguments)

    check = check_of_experts(model, exact, inputs[0][1])
    peers = PADDED_PEERS if padded else PEERS
    alone = timed(with_each(model, ("penstock", *peers), experts), clock, plan, on_gpu=True)
    yield case_of(f"experts, {name}", *alone, check, params)
    if padded:
        return
    check = check_of_forward(model, exact, ids, cache, inputs)
    passes = timed(with_each(model, ("penstock", "zeros", *PEERS), forward), clock, plan, on_gpu=False)
    floor = Floor()
    for us in passes[0]["zeros"].call_us:
        floor.add(us)
    yield {**case_of(f"forward, {name}", *passes, check, params), "floor_us": floor.us}


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
    shapes = {f"prefill 1x{prefill}": (1, prefill, 0),
              **{f"decode, batch {batch}": (batch, 1, CONTEXT) for batch in DECODE}}
    plan = Plan.quick() if args.quick else PLAN
    size, padded = ({**SHAPES, **SMALL}, SMALL_PADDED) if args.quick else (SHAPES, PADDED)
    with torch.inference_mode():
        for suffix, changes in (("", {}), (f", width {padded['moe_intermediate_size']}, padded", padded)):
            model = build({**size, **changes}, where)
            exact = copy.deepcopy(model).float()
            for name, shape in shapes.items():
                for case in measure(model, exact, clock, plan, name + suffix, shape, bool(suffix)):
                    show(case)
                    if not case["correct"]:
                        sys.exit(f"{case['case']}: largest error {case['max_error']}, expected at most "
                                 f"{case['tolerance']}")
                    _results.add(results, case)
            del model, exact  # before the next model is built
    if args.output:
        _results.write(args.output, results)


if __name__ == "__main__":
    main()
