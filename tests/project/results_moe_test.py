"""The tables of moe and route."""

import results

LAYER = {
    "case": "Qwen3", "yardstick_us": 1600.0,
    "params": {"tokens": 16384, "hidden": 2048, "width": 768, "experts": 128, "choices": 8, "zipf": 0.0},
    "ours": {"gpu_us": 2000.0, "alone_us": 2010.0, "call_us": 2050.0, "host_us": 60.0},
    "peer": {"torch": {"gpu_us": 6000.0}, "SonicMoE": {"gpu_us": 2100.0, "call_us": 3000.0}},
    "metrics": {"flop": 1_200_000_000_000, "padded_share": 0.031, "enqueue_us": 40.0,
                "sustained_us": 2200.0, "workspace_bytes": 3 << 20, "workspace_bound": 4 << 20,
                "kernels": {"captured": {"call_us": 2020.0, "enqueue_us": 6.0},
                            "sequential": {"gpu_us": 3000.0}}},
}


def rows_of(name, of, cases):
    return results.TABLES[name]({of: (None, {"cases": cases})}).splitlines()[2:]


def test_a_layer_stands_beside_its_peers_and_its_yardstick():
    assert rows_of("moe", "moe", [LAYER]) == [
        "| Qwen3 | (16384, 2048, 768, 128, 8) | 2 ms | 600 | 0.800 | 2.1 ms | 1.050 | 6 ms | 3.00 | "
        "3 ms | 1.50 | 3.1 % |"]
    assert rows_of("moe", "moe", [LAYER | {"peer": {}}]) == [
        "| Qwen3 | (16384, 2048, 768, 128, 8) | 2 ms | 600 | 0.800 | – | – | – | – | 3 ms | 1.50 | "
        "3.1 % |"]


def test_the_gain_of_overlap_has_a_row_per_layer_that_ran_without():
    without = LAYER | {"metrics": LAYER["metrics"] | {"kernels": {}}}
    assert rows_of("moe-overlap", "moe", [LAYER, without]) == ["| Qwen3 | 3 ms | 2 ms | 1.50 |"]
    assert "| – | – | 3.1 % |" in rows_of("moe", "moe", [without])[0]


def test_rounding_shows_what_it_changes_and_what_it_costs():
    case = LAYER | {"case": "Qwen3, tile 64", "peer": {"not rounded": {"gpu_us": 1900.0},
                                                       "rounded before": {"gpu_us": 1600.0}},
                    "params": LAYER["params"] | {"extra": 4},
                    "metrics": {"changed_share": 0.0192, "experts_rounded_up": 9,
                                "experts_rounded_down": 116}}
    assert rows_of("moe_rounding", "moe_rounding", [case]) == [
        "| Qwen3, tile 64 | 4 | 1.9 % | 9 | 116 | 1.9 ms | 2 ms | 1.6 ms | 1.188 |"]


def test_few_tokens_stand_beside_the_read_of_their_weights():
    case = LAYER | {"floor_us": 1000.0, "metrics": {
        "experts_touched": 51, "rotation": {"sets": 4}, "kernels": {"given logits": {"gpu_us": 1900.0}}}}
    assert rows_of("moe_decode", "moe_decode", [case]) == [
        "| Qwen3 | (16384, 2048, 768, 128, 8) | 51 | 4 | 1 ms | 2 ms | 2.000 | 1.9 ms | 1.900 | "
        "2.1 ms | 1.05 | 6 ms | 3.00 |"]


def test_the_portable_kernel_stands_beside_the_best():
    case = LAYER | {"metrics": {"kernels": {"best": {"gpu_us": 500.0}}}}
    assert rows_of("moe_portable", "moe_portable", [case]) == [
        "| Qwen3 | (16384, 2048, 768, 128, 8) | 2 ms | 500 µs | 4.00 | 6 ms | 3.00 |"]


def test_layouts_stand_beside_the_first_one():
    case = LAYER | {"metrics": {"kernels": {"transposed": {"gpu_us": 3000.0}}}}
    assert rows_of("moe_layouts", "moe_layouts", [case]) == ["| Qwen3 | 2 ms | 3 ms | 1.50 |"]


def test_on_the_cpu_torch_may_have_no_grouped_products():
    case = LAYER | {"params": LAYER["params"] | {"threads": 16}, "ours": {"call_us": 100.0},
                    "peer": {"torch, loop": {"call_us": 150.0}}}
    assert rows_of("moe_cpu", "moe_cpu", [case]) == [
        "| Qwen3 | (16384, 2048, 768, 128, 8) | 16 | 100 µs | 150 µs | 1.50 | – | – |"]


def test_calls_have_their_host_times_and_their_workspace():
    assert rows_of("moe-calls", "moe", [LAYER]) == [
        "| Qwen3 | 2.01 ms | 2.05 ms | 3 ms | 60 µs | 40 µs | 2.02 ms | 6 µs | 2.2 ms | 3 MiB | "
        "75.0 % |"]


def test_routing_has_a_row_per_case():
    case = {"case": "softmax", "yardstick_us": 1.5, "ours": {"gpu_us": 5.0},
            "params": {"tokens": 64, "experts": 128, "choices": 8},
            "peer": {"torch": {"gpu_us": 50.0}}, "metrics": {"enqueue_us": 7.0}}
    assert rows_of("route", "route", [case]) == [
        "| softmax | (64, 128, 8) | 5 µs | 1.5 µs | 50 µs | – | 7 µs |"]
