"""The page KV cache, the answer: the total, what a token adds, every layer, and the sum term by term."""

from __future__ import annotations

from typing import Any

from mha_core.kv_size.__main__ import as_dict
from mha_core.kv_size.engines import ENGINES
from mha_core.kv_size.explain import Term, explain
from mha_core.kv_size.formats import FORMATS
from mha_core.kv_size.units import binary
from mha_core.kv_size.whatif import saving
from mha_view import kv, state
from mha_view.components.facts import facts_strip
from mha_view.components.layers import layer_strip
from mha_view.components.notes import Note, show_notes
from mha_view.components.table import table
from mha_view.kv import KNOBS, PASTED, Model
from mha_view.kv_figures import Asked, layer_rows
from mha_view.recipe import app_recipe
from mha_view.settings import Settings

# One hue for one kind in every picture of this page.
KIND_HUES = {"full": 0, "sliding": 2, "chunked": 2, "latent": 3, "compressed": 3, "state": 5, "shared": 6}
OTHER_HUE = 4
Fact = tuple[str, str, str]


def answer(settings: Settings, model: Model, asked: Asked) -> None:
    """One sentence and the figures; under them whatever a reader of the figures must know."""
    facts = state.cached_figures(("answer", model.token, asked), lambda: _facts(model, asked))
    measured = _measured(settings, model, asked)
    facts_strip(
        [*facts, *measured], key="kv_answer", lead=_lead(model, asked), caption=f"Read from: {model.source}.", main=True
    )
    show_notes(_notes(model, asked), key="kv_caveats")


def _lead(model: Model, asked: Asked) -> str:
    size, place = model.size, f"at {asked.context:,} tokens x {asked.batch:,}"
    total = size.total_bytes(*asked.values)
    if size.layers_with_kv == 0:
        return f"{model.name} keeps no KV cache."
    if asked.batch == 0 or asked.context == 0:
        return f"{model.name} {place} has nothing to remember yet: the cache is empty."
    whole = size.total_bytes(asked.context, asked.batch, asked.dtype, "window-ignored")
    said = f"{model.name} keeps {binary(total)} {place}."
    return said + (f" {_why_less(model, asked, whole)}" if whole > total else "")


def _why_less(model: Model, asked: Asked, whole: int) -> str:
    """Why it is not what an engine that ignores windows would hold."""
    size, bounded = model.size, model.size.bounded
    if bounded is None:
        return ""
    free = size.layers_with_kv - len(bounded.layers)
    rest = f"only {free} keep all {asked.context:,}" if free else "none keeps more"
    return (
        f"Not {binary(whole)}: {len(bounded.layers)} of {len(size.layers)} layers look back {bounded.tokens:,} tokens "
        f"at most and keep no more, {rest}."
    )


def _facts(model: Model, asked: Asked) -> list[Fact]:
    size, total = model.size, model.size.total_bytes(*asked.values)
    what = f"KV cache, {asked.context:,} tokens x {asked.batch:,}, {asked.dtype}"
    found: list[Fact] = [(what, binary(total), f"{total:,} B")]
    first, later = round(size.bytes_per_token(asked.dtype)), round(size.bytes_per_token_growing(asked.dtype))
    if first == later:
        found.append(("each token adds", binary(first), f"{first:,} B"))
    else:
        found.append(("each token adds", binary(first), f"{first:,} B, until windows are full"))
        found.append(("and then", binary(later), f"{later:,} B, the slope of a long text"))
    whole = size.total_bytes(asked.context, asked.batch, asked.dtype, "window-ignored")
    if whole > total > 0:
        found.append(("windows ignored", binary(whole), f"{whole:,} B, {whole / total:.2f} times as much"))
    found.append(("layers that cache", f"{size.layers_with_kv:,} of {len(size.layers):,}", _kinds(model)))
    return [*found, *_heads(model), *_apart(model, asked)]


def _kinds(model: Model) -> str:
    counts: dict[str, int] = {}
    for layer in model.size.layers:
        counts[layer.kind] = counts.get(layer.kind, 0) + 1
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def _heads(model: Model) -> list[Fact]:
    """g, and how much less that is than with a KV head for every query head."""
    size, less = model.size, saving(model.size)
    if less is None:
        return []
    h, g = size.n_heads, size.kv_heads
    if isinstance(g, int):
        words = "MHA: every head has its own" if less == 1 else f"MHA would keep {less:g} times as much"
        return [("saving, h / g", f"{h} / {g} = {less:g}", words)]
    words = "keys and values of one latent" if g is None else "g differs from layer to layer"
    return [("saving against MHA", f"{less:.1f} times", f"h = {h}; {words}")]


def _apart(model: Model, asked: Asked) -> list[Fact]:
    """What is kept beside the cache that grows with the text."""
    size = model.size
    state_bytes = size.state_bytes(asked.batch, engine=asked.engine)
    crossed = size.cross_attention_bytes(None, asked.batch, asked.dtype)
    each = size.cross_attention_bytes(1, 1, asked.dtype)
    tokens = "per encoder token" if size.encoder_tokens is None else f"{size.encoder_tokens:,} encoder tokens"
    shown = crossed if size.encoder_tokens is not None else each
    found = [
        ("state of fixed size, apart", state_bytes, f"{state_bytes:,} B, whatever the context"),
        ("cross-attention, apart", shown, f"{shown:,} B, {tokens}"),
    ]
    index = size.indexer_bytes(*asked.values)
    found.append(("indexer's keys, apart", index, f"{index:,} B"))
    return [(label, binary(n_bytes), note) for label, n_bytes, note in found if n_bytes]


def _notes(model: Model, asked: Asked) -> list[Note]:
    size, form = model.size, FORMATS[asked.dtype]
    sentences = [*size.caveats, *size.notes, *filter(None, (size.beyond_limit(asked.context),))]
    if form.engine not in ("any", asked.engine) and form.engine != asked.engine.split("-")[0]:
        sentences.append(f"{form.name} is a cache of {form.engine}: the engine chosen here does not have it.")
    found = [Note(sentence) for sentence in sentences]
    if asked.engine != "ideal":
        engine = ENGINES[asked.engine]
        found.append(Note(f"{engine.sentence} (source: {engine.source}).", title=f"{engine.label}:"))
    return found


def _measured(settings: Settings, model: Model, asked: Asked) -> list[Fact]:
    """For the visitor's own model: beside the formula the bytes of a cache that is really allocated."""
    if model.key != KNOBS or asked.engine != "ideal" or asked.context * asked.batch == 0:
        return []
    label, cfg = "measured on a real cache", settings.attention()

    def make() -> kv.Measured | None:
        return kv.measured(cfg, asked.context, asked.batch, asked.dtype)

    found = state.cached_figures(("measured", model.token, asked), make)
    if found is None:
        limit = binary(kv.MAX_MEASURED_BYTES)
        return [(label, "not here", f"up to {limit} in {', '.join(kv.TORCH_DTYPES)} only")]
    shape = " x ".join(f"{n:,}" for n in found.shape)
    return [(label, f"{found.nbytes:,} B", f"nbytes of {found.tensors} tensors (b, g, n, d_k) = {shape}")]


def layers(model: Model, asked: Asked) -> None:
    """A bar for each layer."""
    rows, said, kinds = state.cached_figures(("layers", model.token, asked), lambda: _layers(model, asked))
    top = max((n_bytes for _, _, n_bytes in rows), default=0)
    hatched = " Hatched: what an engine that ignores windows would hold." if model.size.bounded else ""
    layer_strip(
        rows,
        kinds=kinds,
        title=f"Layer by layer: {' · '.join(said)}",
        caption=f"Every layer of {model.name}, from 0 to {binary(top)}.{hatched}",
        recipe=_recipe(model, asked, "layers"),
        key="kv_layers",
        file="headroom-kv-layers",
    )


def _layers(model: Model, asked: Asked) -> tuple[list[tuple[int, int, int]], list[str], list[tuple[str, str, int]]]:
    """The bars, the kinds in words, and their legend; full layers first."""
    kinds, rows = layer_rows(model.size, asked)
    keeps = {kind for kind, n_bytes, _ in rows if n_bytes}
    said = [f"{count} {kind}{_bound(model, kind)}" for kind, count in kinds]
    words = [one if i in keeps else f"{one}: nothing that grows with the text" for i, one in enumerate(said)]
    legend = [(kind, word, KIND_HUES.get(kind, OTHER_HUE)) for (kind, _), word in zip(kinds, words, strict=True)]
    return rows, said, legend


def _bound(model: Model, kind: str) -> str:
    widths = {s.window for layer in model.size.layers if layer.kind == kind for s in layer.streams if s.window}
    return f", bounded at {' or '.join(f'{w:,}' for w in sorted(widths))}" if widths else ""


def terms(model: Model, asked: Asked) -> None:
    """The sum, one line for each different layer, with the field of the config behind each number."""

    def make() -> tuple[tuple[Term, ...], dict[str, Any]]:
        return explain(model.size, *asked.values), as_dict(model.size, *asked.values)

    # Where a number comes from is told in words of the config: those of a pasted one are nobody else's.
    pasted = model.key == PASTED
    found, figures = make() if pasted else state.cached_figures(("terms", model.token, asked), make)
    rows = [[t.formula, unbroken(t.bytes), f"{t.bytes:,}", _fields(t.origins)] for t in found]
    total = sum(term.bytes for term in found)
    table(
        ["what is multiplied", "", "bytes", "where each number comes from"],
        [*rows, ["sum", unbroken(total), f"{total:,}", ""]],
        caption=f"The sum, {ENGINES[asked.engine].label} in {asked.dtype}. The recipe holds every figure as JSON.",
        file="headroom-kv-sum",
        recipe={**_recipe(model, asked, "sum"), "answer": figures},
        key="kv_terms",
        marked=len(rows),
    )


def unbroken(n_bytes: int) -> str:
    """Bytes whose unit stays on the line of its number."""
    return binary(n_bytes).replace(" ", "\u00a0")


def _fields(origins: tuple[tuple[str, str], ...]) -> str:
    return "; ".join(f"{what}: {name}" for what, name in origins)


def _recipe(model: Model, asked: Asked, figure: str) -> dict[str, Any]:
    return app_recipe(figure=figure, model=model.name, source=model.source, asked=list(asked.values))
