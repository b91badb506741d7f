"""penstock.MoE: against the same layer of transformers, and against moe() and route()."""

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
                 "activation": "clamped_swiglu", "layout": "interleaved"}),
])
def test_as_transformers(name, options):
    pytest.importorskip("transformers", reason="transformers is not installed here")
    import hf_support

    model = hf_support.build(name)
    model.set_experts_implementation("eager")
    block = model.model.layers[-1].mlp
    given = {key.replace("router.", "gate."): value for key, value in block.state_dict().items()}
    if name == "gpt_oss":
        given |= {key: given[key].mT for key in ("experts.gate_up_proj", "experts.down_proj")}
    if name == "deepseek_v3":
        given = {key: value for key, value in given.items() if "shared" not in key}
        shared = block.shared_experts
        given["shared_expert.gate_up_proj"] = torch.cat([shared.gate_proj.weight,
                                                         shared.up_proj.weight])
        given["shared_expert.down_proj"] = shared.down_proj.weight
    own = layer(**options)
    own.load_state_dict(given)
    x = tokens(2, 11)
    with torch.no_grad():
        wanted = block(x)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    torch.testing.assert_close(own(x), wanted, rtol=0, atol=1e-4)


def test_the_weight_of_the_shared_expert():
    own = layer(shared_width=24, shared_gate=True)
    x, alone = tokens(9), layer()
    alone.load_state_dict({key: value for key, value in own.state_dict().items()
                           if "shared" not in key})
    weight = (x @ own.shared_expert_gate.weight.T).sigmoid()
    gate, up = (x @ own.shared_expert.gate_up_proj.T).chunk(2, 1)
    shared = (torch.nn.functional.silu(gate) * up) @ own.shared_expert.down_proj.T
    torch.testing.assert_close(own(x), alone(x) + weight * shared, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shapes_and_types(dtype):
    own = layer(dtype=dtype, scoring="sigmoid", bias=True)
    for shape in ((), (5,), (2, 3), (0,)):
        out = own(tokens(*shape).to(dtype))
        assert out.shape == (*shape, 64) and out.dtype == dtype
    assert own.to(torch.float16)(tokens(3).half()).dtype == torch.float16
    assert "experts=8, choices=3" in repr(own)


def test_compiled():
    own, x = layer(shared_width=16, shared_gate=True), tokens(2, 5)
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
