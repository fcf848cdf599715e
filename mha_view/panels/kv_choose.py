"""The page KV cache, first part: which model, and how its cache is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mha_core.kv_size.engines import ENGINES
from mha_core.kv_size.formats import FORMATS
from mha_core.kv_size.size import MAX_BATCH, MAX_CONTEXT
from mha_view import kv, state
from mha_view.components.controls import Control, control_bar, worded
from mha_view.components.notes import Note, show_notes
from mha_view.kv import KNOBS, LONG_CONTEXT, PASTED, Model
from mha_view.kv_figures import Asked
from mha_view.numbers import Span
from mha_view.settings import Settings

SOURCE_WORDS = {KNOBS: "your knobs", "preset": "published model", PASTED: "pasted config"}
SIZES, POOLED = "sizes", "pooled"
PART_WORDS = {SIZES: "size of a cache", POOLED: "same weights, fewer KV heads"}
FIRST_PRESET = "llama-3.1-8b"
FIRST_DTYPE = "bf16"
CONTEXT = Span("Context", 0, MAX_CONTEXT, kilo=1024)
BATCH = Span("Batch", 0, MAX_BATCH)
FORMAT_WORDS = {name: name if form.engine == "any" else f"{name} ({form.engine})" for name, form in FORMATS.items()}
ENGINE_WORDS = {name: engine.label for name, engine in ENGINES.items()}


@dataclass(frozen=True)
class Chosen:
    """What the visitor asks about. model: None where there is none yet, or where its config cannot be answered."""

    source: str
    model: Model | None
    asked: Asked
    problems: tuple[str, ...]

    @property
    def defaults(self) -> dict[str, str]:
        """What this model is shown with unless something else is asked for, as it stands in a link."""
        if self.model is None:
            return {"ctx": str(LONG_CONTEXT), "dtype": FIRST_DTYPE, "wdtype": FIRST_DTYPE}
        return {"ctx": str(self.model.context), "dtype": self.model.dtype, "wdtype": self.model.dtype}


def part() -> str:
    """Which half of the page is shown: they ask different things, and each costs a rerun's time."""
    shown = state.pick_choice("part", tuple(PART_WORDS), SIZES)

    def take() -> None:
        state.set_pick_choice("part", state.component_value("kv_part", "set").get("value"), PART_WORDS)

    control_bar([Control("choice", "part", "About", shown, worded(PART_WORDS))], actions={}, key="kv_part", on_set=take)
    return shown


def chosen(settings: Settings) -> Chosen:
    """The model and how its cache is kept, read off the link and what was typed."""
    source = state.source()
    model = _model(settings, source)
    context = state.typed_number("ctx", CONTEXT, LONG_CONTEXT if model is None else model.context)
    batch = state.typed_number("batch", BATCH, 1)
    dtype = state.pick_choice("dtype", tuple(FORMATS), FIRST_DTYPE if model is None else model.dtype)
    engine = state.pick_choice("engine", tuple(ENGINES), "ideal")
    problems = tuple(typed.problem for typed in (context, batch) if typed.problem)
    return Chosen(source, model, Asked(context.value, batch.value, dtype, engine), problems)


def _model(settings: Settings, source: str) -> Model | None:
    pasted = state.pasted()
    if source == KNOBS:
        return kv.knobs_model(settings)
    if source == "preset":
        return kv.preset_model(state.model_name(kv.preset_names(), FIRST_PRESET))
    return None if pasted.size is None else kv.pasted_model(pasted.size)


def model_by_key(settings: Settings, key: str) -> Model | None:
    """A model to compare with, by its key; None for a pasted one that is not there."""
    if key == KNOBS:
        return kv.knobs_model(settings)
    if key == PASTED:
        size = state.pasted().size
        return None if size is None else kv.pasted_model(size)
    return kv.preset_model(key)


def choose(now: Chosen) -> None:
    """The source of the model and how its cache is kept in one line; under it the list of models, or the box."""
    _bar(now)
    if now.source == "preset" and now.model is not None:
        state.select_model(kv.preset_names(), now.model.key, now.defaults)
    elif now.source == PASTED:
        state.paste_box()
        show_notes(_paste_notes(), key="kv_pasted")
    show_notes([Note(problem) for problem in now.problems], key="kv_typed")


def _paste_notes() -> list[Note]:
    pasted = state.pasted()
    found = []
    if not pasted.text and not pasted.problem and pasted.size is None:
        found.append(
            Note("Paste the text of a model's config.json. It stays in this session and its link; nothing is logged.")
        )
    if pasted.problem:
        found.append(Note(pasted.problem, title="No answer.", kind="problem"))
    if pasted.code is None:
        found.append(Note("The text is too long for a link: a link to this view leaves it out."))
    return found


def _bar(now: Chosen) -> None:
    asked = now.asked

    def take() -> None:
        value = state.component_value("kv_how", "set")
        name, wanted = str(value.get("name")), value.get("value")
        if name == "src":
            state.set_source(wanted, now.defaults)
        elif name in ("ctx", "batch"):
            state.set_typed(name, wanted)
        elif name in _OPTIONS:
            state.set_pick_choice(name, wanted, _OPTIONS[name])

    control_bar(
        [
            Control("choice", "src", "The cache of", now.source, worded(SOURCE_WORDS)),
            Control("text", "ctx", "Context, tokens", f"{asked.context:,}", about="131,072 or 128k or 10 million"),
            Control("text", "batch", "Batch", f"{asked.batch:,}", about="sequences at once"),
            Control("select", "dtype", "Cache dtype", asked.dtype, worded(FORMAT_WORDS)),
            Control("select", "engine", "Engine", asked.engine, worded(ENGINE_WORDS)),
        ],
        actions={},
        key="kv_how",
        on_set=take,
    )


_OPTIONS: Mapping[str, Mapping[str, str]] = {"dtype": FORMAT_WORDS, "engine": ENGINE_WORDS}
