"""How many bytes a row of the cache takes: one frozen value per cache dtype, scales counted."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from mha_core.kv_size.specs import Stream
from mha_core.kv_size.values import ReadError, listed, shown

WHOLE_FORMAT = Fraction(2)
# Of a latent of 512 in vLLM's fp8_ds_mla: one scale of 4 bytes per 128 numbers, the rotary part left in 16 bits.
LATENT_BLOCK, LATENT_SCALE = 128, 4


@dataclass(frozen=True)
class CacheFormat:
    """A cache dtype: ``per_element`` bytes for a number, ``per_row`` more for each row of a head.

    residual: how many of the last tokens stay in 16 bits (transformers' QuantizedCache, at most).
    engine: the engine that has it, "any" where all do. source: where the figures were read or run.
    """

    name: str
    per_element: Fraction
    per_row: int = 0
    residual: int = 0
    engine: str = "any"
    source: str = ""

    def row(self, width: int) -> Fraction:
        """Bytes of one row of ``width`` numbers."""
        return self.per_element * width + self.per_row

    def bytes(self, stream: Stream, rows: int) -> Fraction:
        """Bytes of ``rows`` kept rows of a stream."""
        whole = min(rows, self.residual)
        return stream.heads * ((rows - whole) * self.row(stream.width) + whole * WHOLE_FORMAT * stream.width)


@dataclass(frozen=True)
class LatentFormat(CacheFormat):
    """vLLM's fp8_ds_mla: the latent in fp8 with scales, the rotary key in 16 bits; other rows in fp8."""

    rope: int = 64

    def row(self, width: int) -> Fraction:
        """656 bytes for 512 + 64, 132 for an indexer of 128 (fp8 and one scale)."""
        if width <= LATENT_BLOCK:
            return Fraction(width + LATENT_SCALE)
        latent = width - self.rope
        return Fraction(latent + LATENT_SCALE * latent // LATENT_BLOCK + 2 * self.rope)


VLLM_HEADS = "vLLM 0.32 triton_attn.py customize_spec: one 4-byte scale per head, token and side"
GGUF = "gguf 0.19.0 GGML_QUANT_SIZES"
TRANSFORMERS = "measured on transformers' QuantizedCache: blocks of 64, 16-bit scale and zero"


def _gguf(name: str, bytes_of_32: int) -> CacheFormat:
    return CacheFormat(name, Fraction(bytes_of_32, 32), engine="llama.cpp", source=GGUF)


def _quantized(name: str, per_element: Fraction) -> CacheFormat:
    return CacheFormat(name, per_element, residual=128, engine="transformers", source=TRANSFORMERS)


FORMATS: dict[str, CacheFormat] = {
    one.name: one
    for one in (
        CacheFormat("f32", Fraction(4)),
        CacheFormat("bf16", Fraction(2)),
        CacheFormat("f16", Fraction(2)),
        CacheFormat("fp8", Fraction(1), source="vLLM 0.32 KVQuantMode: one scale per tensor, not counted"),
        CacheFormat("int8", Fraction(1), source="without scales: an engine adds its own"),
        CacheFormat("int4", Fraction(1, 2), source="without scales: an engine adds its own"),
        CacheFormat("fp8_per_token_head", Fraction(1), per_row=4, engine="vllm", source=VLLM_HEADS),
        CacheFormat("int8_per_token_head", Fraction(1), per_row=4, engine="vllm", source=VLLM_HEADS),
        CacheFormat("int4_per_token_head", Fraction(1, 2), per_row=4, engine="vllm", source=VLLM_HEADS),
        CacheFormat("nvfp4", Fraction(9, 16), engine="vllm", source="vLLM 0.32 nvfp4_kv_cache_full_dim: d/2 + d/16"),
        LatentFormat("fp8_ds_mla", Fraction(1), engine="vllm", source="vLLM 0.32 flashmla_sparse.py: 656 B per token"),
        _gguf("q8_0", 34),
        _gguf("q5_1", 24),
        _gguf("q5_0", 22),
        _gguf("q4_1", 20),
        _gguf("q4_0", 18),
        _gguf("iq4_nl", 18),
        _quantized("hqq_int8", Fraction(17, 16)),
        _quantized("hqq_int4", Fraction(9, 16)),
        _quantized("quanto_int4", Fraction(9, 16)),
        _quantized("quanto_int2", Fraction(5, 16)),
    )
}
OTHER_NAMES = {
    "float32": "f32", "fp32": "f32", "bfloat16": "bf16", "float16": "f16", "fp16": "f16", "half": "f16",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "float8_e4m3fn": "fp8",
}  # fmt: skip


def cache_format(name: str | CacheFormat) -> CacheFormat:
    """The format of that name (torch's names too); raises ReadError with the names there are."""
    if isinstance(name, CacheFormat):
        return name
    found = FORMATS.get(OTHER_NAMES.get(name, name))
    if found is None:
        raise ReadError(f"The cache dtype {shown(name)} is not known; there are {listed(FORMATS)}.")
    return found
