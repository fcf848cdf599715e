"""The size of a model's KV cache on the command line: ``python -m mha_core.kv_size config.json --context 131072``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mha_core.kv_size.engines import ENGINES, engine_of
from mha_core.kv_size.explain import explain
from mha_core.kv_size.formats import FORMATS, cache_format
from mha_core.kv_size.reader import read_config
from mha_core.kv_size.size import MAX_BATCH, MAX_CONTEXT, KVCacheSize
from mha_core.kv_size.units import exact
from mha_core.kv_size.values import ReadError, listed, shown, whole

NOT_ANSWERED = 2
DEFAULT_CONTEXT = 131_072


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the size and return 0; for a config that cannot be answered one sentence on standard error and 2."""
    asked = _parser().parse_args(arguments)
    try:
        print(_answer(asked))  # noqa: T201 -- this is the command's output
    except ReadError as error:
        print(error, file=sys.stderr)  # noqa: T201 -- this is the command's output
        return NOT_ANSWERED
    except BrokenPipeError:
        sys.stderr.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mha_core.kv_size", description=__doc__)
    parser.add_argument("file", help="a config.json, or - for standard input")
    parser.add_argument("--context", help=f"tokens per sequence (default: the model's limit, else {DEFAULT_CONTEXT:,})")
    parser.add_argument("--batch", default="1", help="sequences at once (default 1)")
    parser.add_argument("--dtype", default="bf16", help=f"cache dtype: {listed(FORMATS)} (default bf16)")
    parser.add_argument("--engine", default="ideal", help=f"{listed(ENGINES)} (default ideal)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _answer(asked: argparse.Namespace) -> str:
    batch = whole("--batch", asked.batch, 0, MAX_BATCH)
    form, engine = cache_format(asked.dtype), engine_of(asked.engine)
    given = None if asked.context is None else whole("--context", asked.context, 0, MAX_CONTEXT)
    size = read_config(_read(asked.file))
    context = (size.max_context or DEFAULT_CONTEXT) if given is None else given
    if asked.json:
        # Plain ASCII on purpose: a model type typed by a stranger cannot play with the terminal.
        return json.dumps(as_dict(size, context, batch, form.name, engine.name), indent=2)
    return _text(size, context, batch, form.name, engine.name)


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it has no such name"
        raise ReadError(f"The file {shown(name)} cannot be read: {why}.") from None


def as_dict(
    size: KVCacheSize, context: int, batch: int = 1, dtype: str = "bf16", engine: str = "ideal"
) -> dict[str, Any]:
    """All answers as plain values, as --json prints them."""
    return {
        "model_type": size.model_type,
        "context": context,
        "batch": batch,
        "dtype": dtype,
        "engine": engine,
        "elements_per_token": size.elements_per_token,
        "elements_per_token_growing": size.elements_per_token_growing,
        "bytes_per_token": size.bytes_per_token(dtype),
        "bytes_per_token_growing": size.bytes_per_token_growing(dtype),
        **_shape(size),
        **_totals(size, context, batch, dtype, engine),
        "max_context": size.max_context,
        "cache_dtype_in_config": size.cache_dtype,
        "terms": [term.sentence for term in explain(size, context, batch, dtype, engine)],
        "caveats": [*size.caveats, *filter(None, (size.beyond_limit(context),))],
        "notes": list(size.notes),
    }


def _shape(size: KVCacheSize) -> dict[str, Any]:
    bounded = size.bounded
    return {
        "layers": len(size.layers),
        "layers_with_kv": size.layers_with_kv,
        "layer_kinds": [layer.kind for layer in size.layers],
        "kv_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "query_heads": size.n_heads,
        "bounded_layers": None if bounded is None else asdict(bounded),
    }


def _totals(size: KVCacheSize, context: int, batch: int, dtype: str, engine: str) -> dict[str, Any]:
    conv, recurrent = size.state_elements(engine)
    return {
        "total_bytes": size.total_bytes(context, batch, dtype, engine),
        "total_bytes_window_ignored": size.total_bytes(context, batch, dtype, "window-ignored"),
        "indexer_bytes": size.indexer_bytes(context, batch, dtype, engine),
        "state_bytes": size.state_bytes(batch, engine=engine),
        "state_elements": {"convolution": conv, "recurrent": recurrent},
        "cross_attention_bytes_per_encoder_token": size.cross_attention_bytes(1, 1, dtype),
        "cross_attention_bytes": size.cross_attention_bytes(None, batch, dtype),
    }


def _text(size: KVCacheSize, context: int, batch: int, dtype: str, engine: str) -> str:
    lines = [
        f"KV cache: {exact(size.total_bytes(context, batch, dtype, engine))}"
        f" for {batch:,} x {context:,} tokens in {dtype} ({engine})",
        f"Windows ignored: {exact(size.total_bytes(context, batch, dtype, 'window-ignored'))}",
        f"Per token: {exact(round(size.bytes_per_token(dtype)))},"
        f" {exact(round(size.bytes_per_token_growing(dtype)))} when all windows are full",
        f"Layers with a cache: {size.layers_with_kv:,} of {len(size.layers):,}",
        *(f"  {term.sentence}" for term in explain(size, context, batch, dtype, engine)),
    ]
    apart = {
        "Indexer, apart": size.indexer_bytes(context, batch, dtype, engine),
        "State of fixed size, apart": size.state_bytes(batch, engine=engine),
        "Cross-attention per encoder token, apart": size.cross_attention_bytes(1, 1, dtype),
    }
    lines += [f"{name}: {exact(n_bytes)}" for name, n_bytes in apart.items() if n_bytes]
    beyond = filter(None, (size.beyond_limit(context),))
    lines += [f"Note: {sentence}" for sentence in (*size.notes, *size.caveats, *beyond)]
    return "".join(f"{line}\n" for line in map(_printable, lines)).rstrip("\n")


def _printable(line: str) -> str:
    """The line in signs that the terminal can show."""
    encoding = sys.stdout.encoding or "utf-8"
    return line.encode(encoding, "replace").decode(encoding)


if __name__ == "__main__":
    sys.exit(main())
