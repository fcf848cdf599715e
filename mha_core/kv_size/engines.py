"""How many tokens an engine really keeps: each has its own definition of one and the same window, and pads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from mha_core.kv_size.specs import Attention, Latent, Layer, Spec, State, Stream, kv_streams
from mha_core.kv_size.values import ReadError, listed, shown


def padded(tokens: int, block: int) -> int:
    """``tokens`` rounded up to whole blocks."""
    return -(-tokens // block) * block


@dataclass(frozen=True)
class Engine(ABC):
    """Says how many tokens of a stream it keeps at a context."""

    name: ClassVar[str]
    label: ClassVar[str]
    sentence: ClassVar[str]
    source: ClassVar[str]

    @abstractmethod
    def kept(self, stream: Stream, context: int) -> int:
        """Tokens kept of one sequence of ``context`` tokens."""

    def streams(self, layer: Layer) -> tuple[Stream, ...]:
        """What it stores for a layer: the streams of the specs."""
        return layer.streams

    def conv_elements(self, state: State) -> int:
        """Numbers it keeps of a state's convolution."""
        return state.conv


@dataclass(frozen=True)
class Ideal(Engine):
    """What the architecture needs: a window of W keeps W tokens, and nothing is padded."""

    name: ClassVar[str] = "ideal"
    label: ClassVar[str] = "Ideal"
    sentence: ClassVar[str] = "what the model needs: a window of W keeps W tokens, nothing is padded"
    source: ClassVar[str] = "definition"

    def kept(self, stream: Stream, context: int) -> int:
        """min(context, window)."""
        return stream.kept(context)


@dataclass(frozen=True)
class WindowIgnored(Engine):
    """What an engine holds that keeps every token in every layer."""

    name: ClassVar[str] = "window-ignored"
    label: ClassVar[str] = "Windows ignored"
    sentence: ClassVar[str] = "an engine that keeps every token in every layer"
    source: ClassVar[str] = "vLLM FullAttentionSpec docstring"

    def kept(self, stream: Stream, context: int) -> int:
        """All of them."""
        return stream.kept(context, window_ignored=True)


@dataclass(frozen=True)
class Transformers(Engine):
    """transformers 5 with DynamicCache, between two steps: a window of W keeps W - 1; some models copy KV heads."""

    name: ClassVar[str] = "transformers"
    label: ClassVar[str] = "transformers 5"
    sentence: ClassVar[str] = "DynamicCache between two steps: a window of W keeps W - 1 tokens"
    source: ClassVar[str] = "transformers 5.24.0 cache_utils.py DynamicSlidingWindowLayer, probed"

    def kept(self, stream: Stream, context: int) -> int:
        """min(context, window - 1)."""
        return context if stream.window is None else min(context, stream.window - 1)

    def streams(self, layer: Layer) -> tuple[Stream, ...]:
        """What the specs name, KV heads as often as they are copied."""
        return tuple(stream for part in layer.parts for stream in self._of_part(part))

    def _of_part(self, part: Spec) -> tuple[Stream, ...]:
        copies = part.copies if isinstance(part, Attention) else 1
        return tuple(replace(stream, heads=stream.heads * copies) for stream in part.streams)

    def conv_elements(self, state: State) -> int:
        """One column more than is needed."""
        return state.conv_width * (state.conv_columns + 1) if state.conv_columns else 0


@dataclass(frozen=True)
class Transformers4(Transformers):
    """transformers 4, which expands the latent of MLA and caches keys and values of every head."""

    name: ClassVar[str] = "transformers-4"
    label: ClassVar[str] = "transformers 4"
    sentence: ClassVar[str] = "as transformers 5, but a latent is expanded: keys and values of every head are cached"
    source: ClassVar[str] = "transformers 4.57.1, probed"

    def _of_part(self, part: Spec) -> tuple[Stream, ...]:
        expands = isinstance(part, Latent) and part.expanded
        return kv_streams(*expands) if expands else super()._of_part(part)


@dataclass(frozen=True)
class VLLM(Engine):
    """vLLM's blocks of 16, with its hybrid KV cache manager; ``in_flight`` tokens are computed at once."""

    block: int = 16
    in_flight: int = 1

    name: ClassVar[str] = "vllm"
    label: ClassVar[str] = "vLLM"
    sentence: ClassVar[str] = "blocks of 16 tokens; a window keeps its blocks and one more"
    source: ClassVar[str] = "vLLM 0.32 kv_cache_interface.py, run"

    def kept(self, stream: Stream, context: int) -> int:
        """Whole blocks: (ceil(min(W - 1 + in_flight, context) / block) + 1) * block for a window."""
        everything = padded(context, self.block)
        if stream.window is None:
            return everything
        if stream.bound == "chunked":
            return min(everything, padded(stream.window + self.in_flight, self.block))
        return min(everything, padded(stream.window - 1 + self.in_flight, self.block) + self.block)


@dataclass(frozen=True)
class VLLMWithoutHybrid(VLLM):
    """vLLM's blocks of 16 without the hybrid manager: every layer keeps every token."""

    name: ClassVar[str] = "vllm-no-hybrid"
    label: ClassVar[str] = "vLLM, no hybrid manager"
    sentence: ClassVar[str] = "blocks of 16 tokens; every layer keeps every token"
    source: ClassVar[str] = "vLLM 0.32 FullAttentionSpec docstring"

    def kept(self, stream: Stream, context: int) -> int:  # noqa: ARG002 -- no stream is treated differently
        """Whole blocks of everything."""
        return padded(context, self.block)


@dataclass(frozen=True)
class LlamaCpp(Engine):
    """llama.cpp: cells in steps of 256; a window keeps one batch of prompt tokens more."""

    ubatch: int = 512
    pad: int = 256

    name: ClassVar[str] = "llama.cpp"
    label: ClassVar[str] = "llama.cpp"
    sentence: ClassVar[str] = "cells in steps of 256; a window of W keeps W + 512 (one prompt batch)"
    source: ClassVar[str] = "llama-kv-cache-iswa.cpp; matches two logs"

    def kept(self, stream: Stream, context: int) -> int:
        """pad256(min(context, W + ubatch))."""
        tokens = context if stream.window is None else min(context, stream.window + self.ubatch)
        return padded(tokens, self.pad)


ENGINES: dict[str, Engine] = {
    one.name: one
    for one in (Ideal(), WindowIgnored(), Transformers(), Transformers4(), VLLM(), VLLMWithoutHybrid(), LlamaCpp())
}


def engine_of(name: str | Engine) -> Engine:
    """The engine of that name; raises ReadError with the names there are."""
    if isinstance(name, Engine):
        return name
    if name not in ENGINES:
        raise ReadError(f"The engine {shown(name)} is not known; there are {listed(ENGINES)}.")
    return ENGINES[name]
