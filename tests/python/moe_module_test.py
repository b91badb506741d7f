"""penstock.MoE: against the same layer of transformers, and against moe() and route().

On the CPU and, where there is one, on a GPU.
"""

import pytest

import penstock

torch = pytest.importorskip("torch", reason="torch is not installed here")


def redraw(layer, seed=1):
    """Weights that are large enough to matter, biases included."""
    draw = torch.Generator().manual_seed(seed)
    for each in layer.state_dict().values():
        each.copy_(torch.randn(each.shape, generator=draw) * each.shape[-1]**-0.5)
    return layer


def layer(**options):
    return redraw(penstock.MoE(**{"d": 64, "width": 48, "experts": 8, "choices": 3, **options}))


def tokens(*shape):
    return torch.randn(*shape, 64, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("name, options", [
    ("qwen3_moe", {"renormalise": True}),
    ("mixtral", {"width": 72, "experts": 6, "choices": 2, "scoring": "topk_softmax"}),
    ("olmoe", {"width": 40, "choices": 4}),
    ("deepseek_v3", {"width": 32, "scoring": "sigmoid", "groups": 2, "renormalise": True,
                     "scale": 2.5, "shared_width": 32}),
    ("gpt_oss", {"width": 56, "scoring": "topk_softmax", "router_bias": True, "bias": True,
                 "activation": "clamped_swiglu", "layout": "interleaved", "transposed": True}),
])
def test_as_transformers(small, name, options, device):
    model = small.build(name, device)
    model.set_experts_implementation("eager")
    block = model.model.layers[-1].mlp
    given = {key.replace("router.", "gate."): value for key, value in block.state_dict().items()}
    if name == "deepseek_v3":
        given = {key: value for key, value in given.items() if "shared" not in key}
        shared = block.shared_experts
        given["shared_expert.gate_up_proj"] = torch.cat([shared.gate_proj.weight,
                                                         shared.up_proj.weight])
        given["shared_expert.down_proj"] = shared.down_proj.weight
    own = layer(device=device, **options)
    own.load_state_dict(given)
    x = tokens(2, 11).to(device)
    with torch.no_grad():
        wanted = block(x)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    torch.testing.assert_close(own(x), wanted, rtol=0, atol=1e-4)


def test_the_weight_of_the_shared_expert(device):
    own = layer(shared_width=24, shared_gate=True, device=device)
    x, alone = tokens(9).to(device), layer(device=device)
    alone.load_state_dict({key: value for key, value in own.state_dict().items()
                           if "shared" not in key})
    weight = (x @ own.shared_expert_gate.weight.T).sigmoid()
    gate, up = (x @ own.shared_expert.gate_up_proj.T).chunk(2, 1)
    shared = (torch.nn.functional.silu(gate) * up) @ own.shared_expert.down_proj.T
    torch.testing.assert_close(own(x), alone(x) + weight * shared, rtol=0, atol=3e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shapes_and_types(dtype, device):
    own = layer(dtype=dtype, scoring="sigmoid", bias=True, device=device)
    for shape in ((), (5,), (2, 3), (0,)):
        out = own(tokens(*shape).to(device, dtype))
        assert out.shape == (*shape, 64) and out.dtype == dtype
    assert own.to(torch.float16)(tokens(3).to(device, torch.float16)).dtype == torch.float16
    assert "experts=8, choices=3" in repr(own)


def test_transposed_weights(device):
    own = layer(transposed=True, bias=True, device=device)
    assert own.experts.gate_up_proj.shape == (8, 64, 96) and own.experts.down_proj.shape == (8, 48, 64)
    usual, x = layer(bias=True, device=device), tokens(2, 5).to(device)
    usual.load_state_dict({key: each.mT if each.dim() == 3 else each
                           for key, each in own.state_dict().items()})
    torch.testing.assert_close(own(x), usual(x), rtol=0, atol=0 if device == "cpu" else 3e-5)
    assert repr(own) == repr(usual) and "d=64, width=48" in repr(own)


@pytest.mark.parametrize("convert", [
    lambda layer: layer.bfloat16(), lambda layer: layer.half(), lambda layer: layer.to(torch.float16),
    lambda layer: layer.gate.bfloat16(), lambda layer: torch.nn.Sequential(layer).to("cpu", torch.bfloat16),
])
def test_the_correction_of_the_scores_stays_f32(convert):
    """Experts 0 and 1 differ by less than bf16 and f16 can tell near 1."""
    own = layer(scoring="sigmoid", choices=1)
    correction = torch.full((8,), 1.0).index_fill_(0, torch.tensor([1]), 1 + 2**-20)
    own.gate.e_score_correction_bias.copy_(correction)
    own.gate.weight.zero_()  # so that the correction alone decides
    own.experts.down_proj[0].zero_()
    convert(own)
    assert own.gate.weight.dtype != torch.float32
    assert own.gate.e_score_correction_bias.dtype == torch.float32
    assert torch.equal(own.gate.e_score_correction_bias, correction)
    own.to(own.gate.weight.dtype)
    assert own(tokens(4).to(own.gate.weight.dtype)).abs().sum(1).all()  # not of expert 0
    assert own.state_dict()["gate.e_score_correction_bias"].dtype == torch.float32


def test_the_correction_of_the_scores_is_f32_whatever_the_default_dtype():
    correction = torch.linspace(1, 1 + 2**-20, 8)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        own = layer(scoring="sigmoid")
        own.load_state_dict({**own.state_dict(), "gate.e_score_correction_bias": correction})
    finally:
        torch.set_default_dtype(before)
    assert own.gate.weight.dtype == torch.bfloat16
    assert own.gate.e_score_correction_bias.dtype == torch.float32
    assert torch.equal(own.gate.e_score_correction_bias, correction)


def test_compiled(device):
    own, x = layer(shared_width=16, shared_gate=True, device=device), tokens(2, 5).to(device)
    torch.compiler.reset()
    got = torch.compile(own, fullgraph=True, backend="eager")(x)
    torch.testing.assert_close(got, own(x))


def test_new_weights():
    torch.manual_seed(1)
    own = penstock.MoE(64, 48, experts=8, choices=2, bias=True, router_bias=True)
    assert own.experts.gate_up_proj.std().sub(0.02).abs() < 1e-3
    assert not own.experts.down_proj_bias.any() and not own.gate.bias.any()


def test_gradients_are_refused():
    with pytest.raises(penstock.Unsupported, match="requires a gradient"):
        layer()(tokens(3).requires_grad_())


@pytest.mark.parametrize("options, says", [
    ({"width": 20}, "^width: expected a multiple of 8, given 20"),
    ({"d": 0}, "^d: expected a multiple of 8, given 0"),
    ({"shared_width": 4}, "^shared_width: expected a multiple of 8, given 4"),
    ({"shared_gate": True}, "^shared_gate: expected a shared expert"),
    ({"experts": 0}, "^experts: expected 1 to 512, given 0"),
    ({"experts": 513}, "^experts: expected 1 to 512, given 513"),
    ({"choices": 0}, "^choices: expected 1 to 16, and at most 8, the number of experts, given 0"),
    ({"choices": 9}, "^choices: expected 1 to 16, and at most 8, the number of experts, given 9"),
    ({"choices": 17, "experts": 32}, "^choices: expected 1 to 16, and at most 32, .*given 17"),
    ({"scoring": "best"}, "^scoring: expected .*given .*best"),
    ({"scale": float("nan")}, "^scale: expected a finite number"),
    ({"groups": 2}, "^groups: expected 1 unless scoring is sigmoid, given 2"),
    ({"groups": 3, "scoring": "sigmoid"}, "^groups: expected .*a divisor of the 8 experts, given 3"),
    ({"groups": 4, "top_groups": 5, "scoring": "sigmoid"}, "^top_groups: expected 1 to 4"),
    ({"groups": 4, "scoring": "sigmoid"}, "^top_groups: expected enough groups for 3 choices"),
    ({"activation": "relu"}, "^activation: expected .*given .*relu"),
    ({"activation": "clamped_swiglu", "limit": float("nan")}, "^limit: expected"),
    ({"layout": "rows"}, "^layout: expected .*given .*rows"),
])
def test_errors_name_the_argument(options, says):
    with pytest.raises(penstock.InvalidArgument, match=says):
        layer(**options)


def test_the_package_does_not_import_torch(python):
    python("""
        import sys
        import penstock
        assert "torch" not in sys.modules
        try:
            penstock.nothing
        except AttributeError as error:
            assert "no attribute 'nothing'" in str(error)
        assert penstock.MoE.__name__ == "MoE" and "torch" in sys.modules
    """)
