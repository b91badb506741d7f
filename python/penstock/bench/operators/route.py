"""route: chooses the experts of every token from the router's logits."""

from .._operator import Case, Context, Operator
from ..mixture.route_case import RouteCase, Rule

SOFTMAX = Rule(128, 8, "softmax_topk", renormalise=True)  # Qwen3
MIXTRAL = Rule(8, 2, "topk_softmax")
DEEPSEEK = Rule(256, 8, "sigmoid", "f32", groups=8, top_groups=4, renormalise=True, scale=2.5)

CASES = {
    "softmax": (16384, SOFTMAX),
    "softmax of 8": (16384, MIXTRAL),
    "sigmoid in groups": (16384, DEEPSEEK),
    "softmax, 64 tokens": (64, SOFTMAX),
    "sigmoid in groups, 64 tokens": (64, DEEPSEEK),
}


class Route(Operator):
    name = "route"
    summary = "the experts of every token and their weights, from the router's logits"

    def cases(self, context: Context) -> list[Case]:
        return [RouteCase(context, name, min(tokens, 256) if context.quick else tokens, rule)
                for name, (tokens, rule) in CASES.items()]


operator = Route()
