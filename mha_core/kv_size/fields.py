"""Which field names mean what: a new spelling is one word in a table."""

from __future__ import annotations

MAX_LAYERS = 10_000
MAX_HEADS = 65_536
MAX_WIDTH = 1_000_000
MAX_WINDOW = 1_000_000_000

# The first name that is in the file and not null counts; the first of all is the one that messages name.
N_LAYERS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers", "layers",
)  # fmt: skip
N_DECODER_LAYERS = ("decoder_layers", "num_decoder_layers", "decoder_num_hidden_layers", *N_LAYERS)
N_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads", "num_query_heads", "attention_heads")
N_DECODER_HEADS = (
    "decoder_attention_heads", "num_decoder_attention_heads", "decoder_num_attention_heads", *N_HEADS,
)  # fmt: skip
# vLLM's order (config/model_arch.py CONFIG_FIELD_ALIASES), then the spellings of DBRX and of params.json.
N_KV_HEADS = (
    "n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups",
    "n_kv_heads", "kv_n_heads", "decoder_num_key_value_heads",
)  # fmt: skip
HEAD_DIM = (
    "head_dim",
    "hidden_size_per_head",
    "attention_head_dim",
    "kv_channels",
    "d_kv",
    "head_size",
    "d_head",
    "dim_head",
)
V_HEAD_DIM = ("v_head_dim", "value_head_dim")
HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim", "dim", "embed_dim")
WINDOW = ("sliding_window", "attention_window_size", "sliding_window_size", "local_attention_window")
CHUNK = ("attention_chunk_size",)
MAX_CONTEXT = (
    "model_max_length", "max_target_positions", "max_position_embeddings", "n_positions", "max_seq_len", "seq_length",
    "max_context_length", "max_sequence_length", "n_ctx",
)  # fmt: skip
DTYPE = ("torch_dtype", "dtype")
LATENT = ("kv_lora_rank",)
ROPE = ("qk_rope_head_dim",)
NOPE = ("qk_nope_head_dim",)
INDEXER = ("index_head_dim",)

# Layers of one kind that have sizes of their own (MiMo-V2 for windows, Gemma 4 for full attention).
OWN_SIZES: dict[str, dict[str, tuple[str, ...]]] = {
    "sliding": {
        "n_heads": ("swa_num_attention_heads",),
        "n_kv_heads": ("swa_num_key_value_heads", "num_swa_key_value_heads"),
        "head_dim": ("swa_head_dim",),
        "v_head_dim": ("swa_v_head_dim",),
    },
    "full": {"n_kv_heads": ("num_global_key_value_heads",), "head_dim": ("global_head_dim",)},
}

# Where a multimodal config keeps its decoder, in the order in which they are looked for.
DECODERS = (
    "text_config", "llm_config", "language_config", "language_model_config", "thinker_config", "llm",
    "text_model_config", "decoder_config", "decoder", "talker_config",
)  # fmt: skip

# What layers are called in layer_types and its relatives.
LAYER_NAMES = {
    "full_attention": "full", "attention": "full", "global_attention": "full", "full": "full", "global": "full",
    "self_attention": "full", "softmax_attention": "full", "full_attn": "full",
    "sliding_attention": "sliding", "sliding_window_attention": "sliding", "local_attention": "sliding",
    "local": "sliding", "sliding": "sliding", "sliding_window": "sliding", "swa": "sliding",
    "chunked_attention": "chunked", "chunked": "chunked",
    "indexed_attention": "indexed", "deepseek_sparse_attention": "indexed",
    "compressed_sparse_attention": "csa", "heavily_compressed_attention": "hca",
    "cross_attention": "cross",
    "mamba": "state", "mamba2": "state", "mamba1": "state", "linear_attention": "state", "recurrent": "state",
    "conv": "state", "short_conv": "state", "rglru": "state", "kda": "state", "gated_deltanet": "state",
    "hybrid": "hybrid", "hybrid_sliding": "hybrid_sliding",
    "mlp": "none", "moe": "none", "none": "none", "no_op": "none", "ffn": "none",
}  # fmt: skip
LETTERS = {"M": "state", "*": "full", "-": "none", "E": "none"}
WINDOW_LETTERS = {"L": "sliding", "G": "full", "S": "sliding", "F": "full"}

# Fields that speak of a state or a scheme; with one of them a plain sum over all layers would be a guess.
STATE_FIELDS = (
    "mamba_d_state", "mamba_d_conv", "mamba_expand", "mamba_n_heads", "mamba_num_heads", "mamba_headdim",
    "mamba_d_head", "mamba_head_dim", "mamba_d_ssm", "ssm_state_size", "state_size", "conv_L_cache", "conv_kernel",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
    "linear_conv_kernel_dim", "linear_attn_config", "lru_width", "conv1d_width", "ssm_cfg", "time_step_rank",
)  # fmt: skip
SIGNS = (
    r"mamba|ssm_|_ssm|rwkv|retention|recurren|linear_attn|linear_attention|lightning|delta_?net|hybrid|block_types"
    r"|latent|kv_lora|kv_rank|kv_compress|compress_r|kv_share|shared_kv|kv_source|cross_layer|cla_|yoco|sparse_attention"
    r"|index_(topk|head|n_heads)|indexer|landmark|ring_attention|memory_tokens|infini"
)
# Parts of names that match a sign and say nothing about how much is cached.
HARMLESS = r"moe|expert|rope|theta|norm|dtype|init|eps$|loss|dropout|bias|mtp|multiplier|quant"
# What the reader knows how to read, beside the tables above: an indexer only beside a latent, a state where one is.
READ = frozenset((
    "kv_lora_rank", "compress_ratios", "compress_rates", "hybrid_override_pattern", "hybrid_layer_pattern",
    "hybrid_layer_ids", "block_types", "_block_types", "layers_block_type", "linear_attn_config",
    "num_kv_shared_layers",
))  # fmt: skip
INDEX_PREFIXES = ("index_", "indexer_")
STATE_PREFIXES = ("mamba_", "ssm_", "linear_", "time_step", "use_mamba")

NUMBERS = frozenset(
    name
    for names in (
        N_DECODER_LAYERS, N_DECODER_HEADS, N_KV_HEADS, HEAD_DIM, V_HEAD_DIM, HIDDEN, WINDOW, CHUNK, LATENT, ROPE, NOPE,
        INDEXER, STATE_FIELDS, *(own for kind in OWN_SIZES.values() for own in kind.values()),
    )
    for name in names
)  # fmt: skip
