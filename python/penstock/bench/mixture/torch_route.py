"""route in plain torch operations."""

from typing import Any

import torch

from .route_case import Rule


def choose(rule: Rule, inputs: Any, outputs: Any) -> None:
    logits, bias = inputs
    scores = logits.float()
    if rule.scoring == "sigmoid":
        values = torch.sigmoid(scores)
        compared = values + bias
        if rule.groups > 1:
            compared = _in_best_groups(rule, compared)
        ids = torch.topk(compared, rule.choices).indices
        weights = values.gather(1, ids)
    elif rule.scoring == "topk_softmax":
        best, ids = torch.topk(scores, rule.choices)
        weights = torch.softmax(best, -1)
    else:
        weights, ids = torch.topk(torch.softmax(scores, -1), rule.choices)
    if rule.renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
    outputs[0].copy_(ids)
    outputs[1].copy_(weights * rule.scale)


def _in_best_groups(rule: Rule, compared: Any) -> Any:
    """The scores, with -infinity for experts outside the groups with the best sum of two scores."""
    grouped = compared.unflatten(1, (rule.groups, -1))
    sums = grouped.topk(2, -1).values.sum(-1)
    best = torch.topk(sums, rule.top_groups).indices
    outside = torch.ones_like(sums, dtype=torch.bool).scatter_(1, best, False)
    return grouped.masked_fill(outside[..., None], -torch.inf).flatten(1)
