"""Times generations of a transformers model whose attention Penstock computes, next to torch's.

    python3 bench/attention_transformers.py --output bench/results/attention_transformers.json

The models have random weights and bf16. Each generates 256 tokens with penstock.attention, once with
transformers' DynamicCache and once with penstock.hf.KVCache, with transformers' eager attention, and
with each backend of torch's scaled_dot_product_attention; their runs are interleaved. Timed is a
token of `generate` after the first one.

Every timed run is checked. The tokens are those that eager attention chose in a run before, whatever
the logits say, so that all runs see the same inputs; their logits are kept. An f32 model with the same
weights says how exact eager's logits are. At positions where eager's best token leads by more than 4
times its largest error, the same token must be the best of ours, and our largest error must be
comparable to eager's.
"""

import argparse
import copy
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import penstock
import penstock.hf
import torch
import transformers
from penstock.bench import _results
from penstock.bench._clock import clock_for
from penstock.bench._timing import Plan, Samples, Turns
from torch.nn.attention import SDPBackend, sdpa_kernel

SEED, WARM_UP_TOKENS, SURE = 1, 8, 4
TOKENS = 256  # of a generation
SECONDS = 75.0  # after which no round begins, except the first of a case
TINY = {"vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
# The layers of Llama 3.2 3B, 8 of 28, and a smaller vocabulary.
LARGE = {"vocab_size": 32768, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 8,
         "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128}
# The model's name and shapes, the tokens of the prompt, and the most rounds of timed runs.
CASES = (("tiny", TINY, 128, 3), ("1B", LARGE, 128, 2), ("1B", LARGE, 8192, 2))
QUICK_CASES = (("tiny", TINY, 32, 1),)
DYNAMIC, OWN = "penstock, DynamicCache", "penstock, KVCache"
BACKENDS = {"FlashAttention 2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION}
PEERS = (*BACKENDS, "eager")


def build(shapes, device):
    """The model, its weights drawn on the device itself."""
    config = transformers.LlamaConfig(**shapes, max_position_embeddings=16384, eos_token_id=None)
    torch.manual_seed(SEED)
    with torch.device(device):
        model = transformers.LlamaForCausalLM._from_config(config, dtype=torch.bfloat16).eval()
        for name, each in model.named_parameters():
            if each.dim() > 1:
                # With a standard deviation of 2, scores differ enough for some keys to matter more.
                scale = 2**0.5 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1
                each.normal_(0, scale * each.shape[-1]**-0.5)
    return model


class Recorder(transformers.LogitsProcessor):
    """Keeps the logits of a generation, and when the first ones were there. Given tokens, `generate`
    takes these, whatever the logits say."""

    def __init__(self, synchronize, forced=None):
        self._synchronize, self._forced = synchronize, forced
        self.logits, self.first = [], 0.0

    def __call__(self, input_ids, scores):
        if not self.logits:
            self._synchronize()
            self.first = time.perf_counter()
        self.logits.append(scores)
        return scores if self._forced is None else self._forced[len(self.logits) - 1]


def forced_scores(tokens, vocabulary):
    """What makes greedy decoding choose these tokens, one row per step."""
    scores = torch.full((len(tokens), 1, vocabulary), -torch.inf, device=tokens.device)
    return scores.scatter_(2, tokens[:, None, None], 0)


def generate(model, name, ids, tokens, recorder):
    """The sequence that `generate` returns, with the implementation of this name."""
    attention = {DYNAMIC: "penstock", OWN: "penstock", "eager": "eager"}.get(name, "sdpa")
    model.set_attn_implementation(attention)
    cache = penstock.hf.KVCache(model.config) if name == OWN else None
    with sdpa_kernel(BACKENDS[name]) if name in BACKENDS else nullcontext():
        return model.generate(ids, attention_mask=torch.ones_like(ids), past_key_values=cache,
                              logits_processor=[recorder], do_sample=False, max_new_tokens=tokens)


@dataclass
class Reference:
    """What eager attention chose, and where its choice is beyond doubt."""

    ids: torch.Tensor  # of the prompt, (1, prompt)
    forced: torch.Tensor
    exact: torch.Tensor  # the logits of an f32 model, (tokens, vocabulary)
    best: torch.Tensor  # eager's tokens
    sure: torch.Tensor  # whether eager's lead is more than its error can explain
    error: float  # the largest of eager's logits

    @classmethod
    def of(cls, model, ids, tokens, synchronize):
        recorder = Recorder(synchronize)
        sequence = generate(model, "eager", ids, tokens, recorder)
        got = torch.cat(recorder.logits)
        exact = copy.deepcopy(model).float()(sequence[:, :-1], logits_to_keep=tokens).logits[0]
        errors = (got - exact).abs().amax(1)
        first, second = got.topk(2, 1).values.unbind(1)
        chosen = sequence[0, ids.shape[1]:]
        return cls(ids, forced_scores(chosen, got.shape[1]), exact, chosen,
                   first - second > SURE * errors, errors.max().item())

    def judge(self, logits):
        """The largest error, and the number of other tokens where eager's are beyond doubt."""
        got = torch.cat(logits)
        others = (got.argmax(1) != self.best) & self.sure
        error = (got - self.exact).abs().max().item()
        return (error if got.isfinite().all() else float("inf")), int(others.sum())

    @property
    def tolerance(self):
        largest = self.exact.abs().max().item()
        return 2 * self.error + torch.finfo(torch.bfloat16).eps * largest


@dataclass
class Runs:
    """The generations of one implementation."""

    tokens: Samples = field(default_factory=Samples)  # time per token after the first
    first: Samples = field(default_factory=Samples)  # until the first token
    error: float = 0.0  # this and the next one: of the worst generation
    mismatches: int = 0

    def add(self, model, name, reference, synchronize):
        recorder = Recorder(synchronize, reference.forced)
        synchronize()
        begin = time.perf_counter()
        generate(model, name, reference.ids, len(reference.forced), recorder)
        synchronize()
        end = time.perf_counter()
        count = len(reference.forced) - 1
        self.tokens.call_us.append((end - recorder.first) / count * 1e6)
        self.first.call_us.append((recorder.first - begin) * 1e6)
        error, mismatches = reference.judge(recorder.logits)
        self.error, self.mismatches = max(self.error, error), max(self.mismatches, mismatches)


def warmed_up(model, reference, synchronize):
    """The implementations that can run this model, and why the others cannot."""
    names, left_out = [], {}
    for name in (DYNAMIC, OWN, *PEERS):
        try:
            # cuDNN prepares a plan for every length.
            tokens = len(reference.forced) if name == "cuDNN" else WARM_UP_TOKENS
            generate(model, name, reference.ids, tokens, Recorder(synchronize, reference.forced))
            names.append(name)
        except RuntimeError as error:
            if name not in BACKENDS:
                raise
            left_out[name] = str(error).strip().split(".")[0]  # its first sentence
    return names, left_out


def measure(model, name, prompt, tokens, rounds, end, synchronize):
    """The two cases of a prompt: with transformers' cache and with ours. Stops at the time `end`, but
    not before everything has run once."""
    draw = torch.Generator().manual_seed(SEED)
    ids = torch.randint(0, model.config.vocab_size, (1, prompt), generator=draw).to(model.device)
    reference = Reference.of(model, ids, tokens, synchronize)
    names, left_out = warmed_up(model, reference, synchronize)
    found, turns = {each: Runs() for each in names}, Turns(Plan(), time.sleep)
    begin = time.monotonic()
    for number in range(rounds):
        for each in turns.of(names):
            found[each].add(model, each, reference, synchronize)
            print(f"{name}, prompt {prompt}, round {number + 1}, {each}: "
                  f"{found[each].tokens.call_us[-1] / 1e3:.2f} ms per token", flush=True)
        if time.monotonic() + (time.monotonic() - begin) / (number + 1) > end:
            break
    for ours, cache in ((DYNAMIC, "DynamicCache"), (OWN, "KVCache")):
        yield case_of(f"{name}, prompt {prompt}, {cache}", found, ours, reference, left_out,
                      params_of(model, prompt, tokens))


def params_of(model, prompt, tokens):
    config = model.config
    return {"parameters": model.num_parameters(), "layers": config.num_hidden_layers,
            "heads": config.num_attention_heads, "heads_kv": config.num_key_value_heads,
            "dim": config.head_dim, "prompt": prompt, "tokens": tokens, "dtype": "bf16"}


def case_of(name, found, ours, reference, left_out, params):
    own = found[ours]
    counted = {"ours": own} | {each: found[each] for each in PEERS if each in found}
    correct = own.error <= reference.tolerance and own.mismatches == 0
    metrics = {"compared": int(reference.sure.sum()),
               "mismatches": {each: runs.mismatches for each, runs in counted.items()},
               "errors": {each: runs.error for each, runs in counted.items()},
               "first_token_us": {each: runs.first.summary()["call_us"]
                                  for each, runs in counted.items()}}
    return {"case": name, "params": params, "correct": correct, "max_error": own.error,
            "tolerance": reference.tolerance, "ours": own.tokens.summary(),
            "peer": {each: found[each].tokens.summary() for each in PEERS if each in found},
            "metrics": metrics | ({"left_out": left_out} if left_out else {})}


def show(case):
    metrics = case["metrics"]
    times = {"Penstock": case["ours"], **case["peer"]}
    print(f"{case['case']}: " + ", ".join(f"{name} {each['call_us'] / 1e3:.3f} ms"
                                          for name, each in times.items()))
    print(f"  other tokens: {metrics['mismatches']} at {metrics['compared']} of "
          f"{case['params']['tokens']} positions compared; our largest error {case['max_error']:.4f}, "
          f"at most {case['tolerance']:.4f}"
          + "".join(f"; without {name}: {why}" for name, why in metrics.get("left_out", {}).items()),
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="results file to write")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: the first GPU if there is one)")
    parser.add_argument("--seconds", type=float, default=SECONDS,
                        help=f"after which no round begins, except the first (default: {SECONDS:.0f})")
    parser.add_argument("--quick", action="store_true", help="the tiny model, to try the program")
    args = parser.parse_args()
    if args.output:
        _results.check_writable("--output", args.output)
    device = penstock.Device(args.device)
    synchronize = clock_for(device).synchronize
    penstock.hf.register()
    version = f"of torch {torch.__version__}, transformers {transformers.__version__}"
    results = _results.document("attention_transformers", device, penstock.limits(device, quick=True),
                                SEED, {name: version for name in PEERS})
    where = "cpu" if device.kind == "cpu" else f"cuda:{device.index}"
    cases, tokens = (QUICK_CASES, 16) if args.quick else (CASES, TOKENS)
    begin, model, built = time.monotonic(), None, None
    with torch.inference_mode():
        for number, (name, shapes, prompt, rounds) in enumerate(cases, 1):
            if shapes is not built:
                model, built = build(shapes, where), shapes
            end = begin + args.seconds * number / len(cases)
            for case in measure(model, name, prompt, tokens, rounds, end, synchronize):
                show(case)
                if not case["correct"]:
                    sys.exit(f"{case['case']}: expected eager's tokens and a largest error of at most "
                             f"{case['tolerance']}, got {case['metrics']['mismatches']['ours']} other "
                             f"tokens and {case['max_error']}")
                results["cases"].append(case)
    if args.output:
        _results.write(args.output, results)


if __name__ == "__main__":
    main()
