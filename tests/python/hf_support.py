"""Small transformers models with random weights, and experts for them."""

import torch
import transformers

SIZES = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": None}
MODELS = {
    "llama": ("Llama", {"intermediate_size": 72}),
    "qwen3_moe": ("Qwen3Moe", {"intermediate_size": 48, "moe_intermediate_size": 48, "head_dim": 16,
                               "num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": True}),
    "mixtral": ("Mixtral", {"intermediate_size": 72, "num_local_experts": 6,
                            "num_experts_per_tok": 2}),
    "olmoe": ("Olmoe", {"intermediate_size": 40, "num_experts": 8, "num_experts_per_tok": 4}),
    "deepseek_v3": ("DeepseekV3", {
        "intermediate_size": 48, "moe_intermediate_size": 32, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 3, "n_group": 2, "topk_group": 1,
        "first_k_dense_replace": 1, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16,
        "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}),
    "gpt_oss": ("GptOss", {"intermediate_size": 56, "num_local_experts": 8, "num_experts_per_tok": 3,
                           "head_dim": 16, "sliding_window": 16}),
    "qwen2_moe": ("Qwen2Moe", {"intermediate_size": 48, "moe_intermediate_size": 32, "num_experts": 8,
                               "num_experts_per_tok": 2, "shared_expert_intermediate_size": 40}),
    "qwen3_next": ("Qwen3Next", {
        "intermediate_size": 48, "moe_intermediate_size": 32, "num_experts": 8,
        "num_experts_per_tok": 2, "shared_expert_intermediate_size": 40, "head_dim": 16,
        "num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16}),
    "deepseek_v2": ("DeepseekV2", {
        "intermediate_size": 48, "moe_intermediate_size": 32, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 3, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16,
        "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}),
    "glm4_moe": ("Glm4Moe", {
        "intermediate_size": 48, "moe_intermediate_size": 32, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 3, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1, "head_dim": 16}),
    # Of types that penstock.hf.load does not list.
    "dots1": ("Dots1", {
        "intermediate_size": 48, "moe_intermediate_size": 32, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 3, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1, "head_dim": 16}),
    "ernie4_5_moe": ("Ernie4_5_Moe", {
        "intermediate_size": 48, "moe_intermediate_size": 32, "moe_num_experts": 8, "moe_k": 3,
        "moe_num_shared_experts": 1, "moe_layer_start_index": 1, "head_dim": 16}),
    "flex_olmo": ("FlexOlmo", {"intermediate_size": 40, "num_experts": 8, "num_experts_per_tok": 4}),
    "hunyuan_v1_moe": ("HunYuanMoEV1", {"intermediate_size": 48, "num_experts": 8, "moe_topk": 3,
                                        "head_dim": 16, "eod_token_id": 3}),
    # Without experts, for tests of attention.
    "gemma2": ("Gemma2", {"intermediate_size": 72, "head_dim": 20, "sliding_window": 12,
                          "query_pre_attn_scalar": 20, "attn_logit_softcapping": 5.0}),
}


def build(name, device="cpu", dtype=torch.float32, **changes):
    """A model with weights that are large enough for every expert to matter."""
    prefix, own = MODELS[name]
    config = getattr(transformers, f"{prefix}Config")(**{**SIZES, **own, **changes})
    torch.manual_seed(1)
    model = getattr(transformers, f"{prefix}ForCausalLM")._from_config(config,
                                                                       dtype=torch.float32)
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for each in [*model.parameters(), *model.buffers()]:
            if each.is_floating_point() and each.dim() > 1:
                each.copy_(torch.randn(each.shape, generator=draw) * each.shape[-1]**-0.5)
    return model.to(device, dtype).eval()


def with_fp8_experts(name):
    """A model on the meta device, whose experts are modules of fp8 blocks, as transformers loads them from such
    a checkpoint."""
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear

    config = transformers.FineGrainedFP8Config(weight_block_size=(8, 8))
    return replace_with_fp8_linear(build(name, "meta"), quantization_config=config)


def prompt(device="cpu", batch=2, tokens=21):
    draw = torch.Generator().manual_seed(3)
    return torch.randint(2, SIZES["vocab_size"], (batch, tokens), generator=draw).to(device)


def logits(model, implementation, ids):
    model.set_experts_implementation(implementation)
    with torch.no_grad():
        return model(ids, use_cache=False).logits


def zeros(module, hidden_states, top_k_index, top_k_weights):
    return torch.zeros_like(hidden_states)
