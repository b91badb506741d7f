"""Generations of 256 tokens with penstock.hf, against transformers' eager attention.

Rounding can change which token is the best, and every later one with it. So the tokens are those that
eager attention chose, whatever the logits say, and the logits of every step are compared.

Needs torch and transformers, on the CPU and, where there is one, on a GPU. With --require-gpu a
missing transformers is an error.
"""

import copy

import pytest

import penstock
import penstock.hf

torch = pytest.importorskip("torch", reason="torch is not installed here")

TOKENS, SURE = 256, 4
# Head dimension 64, for which there is a decode kernel, and groups of 3 heads.
SHAPES = {"hidden_size": 192, "head_dim": 64, "num_attention_heads": 6, "num_key_value_heads": 2,
          "max_position_embeddings": 512}


def generated(model, ids, mask, implementation, forced=None, cache=None):
    """The tokens that `generate` returns, and the logits of every step: (B, tokens, vocabulary)."""
    steps = []

    def record(_, scores):
        steps.append(scores)
        if forced is None:
            return scores
        chosen = forced[:, len(steps) - 1, None]
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen, 0)

    model.set_attn_implementation(implementation)
    sequences = model.generate(ids, attention_mask=mask, past_key_values=cache,
                               logits_processor=[record], do_sample=False, max_new_tokens=TOKENS)
    return sequences[:, ids.shape[1]:], torch.stack(steps, 1)


def logits_in_f64(model, ids, mask, tokens):
    """Those of one forward pass of an f64 model over all rows of a sequence, without its padding."""
    exact = copy.deepcopy(model).double()
    exact.set_attn_implementation("eager")
    found = []
    for prompt, there, own in zip(ids, mask.bool(), tokens):
        rows = torch.cat((prompt[there], own))[None, :-1]
        with torch.inference_mode():
            found.append(exact(rows, use_cache=False, logits_to_keep=TOKENS).logits)
    return torch.cat(found)


@pytest.mark.parametrize("padding", [0, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_agrees_with_eager_at_every_step(small, dtype, padding, device):
    model = small.build("llama", device, dtype, **SHAPES)
    ids = small.prompt(device)
    mask = torch.ones_like(ids)
    mask[1, :padding] = 0
    tokens, eagers = generated(model, ids, mask, "eager")
    exact = logits_in_f64(model, ids, mask, tokens)
    errors = (eagers - exact).abs().amax(-1)
    first, second = eagers.topk(2).values.unbind(-1)
    sure = first - second > SURE * errors
    assert sure.sum() > TOKENS  # more than half of the two sequences' steps
    for cache in (None, penstock.hf.KVCache(model.config, ahead=16)):
        forced, got = generated(model, ids, mask, "penstock", tokens, cache)
        assert torch.equal(forced, tokens)
        assert torch.equal(got.argmax(-1)[sure], tokens[sure])
        assert (got - exact).abs().max() <= 2 * errors.max() + torch.finfo(dtype).eps * first.max()
