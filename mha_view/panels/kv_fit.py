"""The page KV cache: what fits on GPUs, said first, and then how fast a token can be decoded at best."""

from __future__ import annotations

import streamlit as st

from mha_core.kv_size.hardware import GPU, gpus
from mha_core.kv_size.size import MAX_RANKS
from mha_core.kv_size.units import binary
from mha_core.kv_size.weights import WEIGHT_BYTES, Parameters
from mha_view import kv_figures, state
from mha_view.components.budget import memory_bar
from mha_view.components.controls import Control, control_bar, worded
from mha_view.components.facts import facts_strip
from mha_view.components.notes import Note, show_notes
from mha_view.kv import Model
from mha_view.kv_figures import Asked, Fitting
from mha_view.numbers import Span
from mha_view.recipe import app_recipe

FIRST_GPU = "H100 80GB SXM"
GPUS = Span("GPUs", 1, MAX_RANKS)
COUNT = Span("Parameters", 1, 10**15)
CACHE_HUE, WEIGHT_HUE = 0, 4
WEIGHT_WORDS = {name: name for name in WEIGHT_BYTES}


def fits(model: Model, asked: Asked) -> None:
    """Memory first: weights, cache, what is left, how long and how many. Then the bound on speed."""
    st.subheader("What fits, and how fast")
    gpu, n_gpus, weights, count, problems = _asked_for(model)
    _bar(model, gpu, n_gpus, weights, count)
    show_notes([Note(problem) for problem in problems], key="kv_fit_typed")
    if count is None:
        text = "The parameters of this model cannot be counted exactly from its config. Type how many it has, as in 7B."
        show_notes([Note(text)], key="kv_no_count")
        return

    def make() -> Fitting:
        return kv_figures.fitting(model.size, asked, count, weights, gpu, n_gpus)

    found = state.cached_figures(("fit", model.token, asked, count, weights, gpu, n_gpus), make)
    _memory(model, asked, found, gpus()[gpu], n_gpus)
    _speed(asked, found, gpus()[gpu])


def _asked_for(model: Model) -> tuple[str, int, str, Parameters | None, list[str]]:
    """GPU, how many, weights dtype, parameters (None: neither counted nor typed), and what was wrong."""
    gpu = state.pick_choice("gpu", tuple(gpus()), FIRST_GPU)
    n_gpus = state.typed_number("gpus", GPUS, 1)
    weights = state.pick_choice("wdtype", tuple(WEIGHT_BYTES), model.dtype)
    typed = state.typed_number("params", COUNT, 0)
    count = Parameters(typed.value, typed.value) if typed.value else model.parameters
    problems = [one.problem for one in (n_gpus, typed) if one.problem]
    return gpu, n_gpus.value, weights, count, problems


def _bar(model: Model, gpu: str, n_gpus: int, weights: str, count: Parameters | None) -> None:
    options = {"gpu": gpus(), "wdtype": WEIGHT_BYTES}

    def take() -> None:
        value = state.component_value("kv_fit", "set")
        name, wanted = value.get("name"), value.get("value")
        if name in ("gpus", "params"):
            state.set_typed(name, wanted)
        elif name in options:
            state.set_pick_choice(name, wanted, options[name])

    shown = "" if count is None else f"{count.total:,}"
    label = "Parameters" if model.parameters is None else "Parameters, counted"
    control_bar(
        [
            Control("select", "gpu", "GPU", gpu, worded({name: name for name in gpus()})),
            Control("text", "gpus", "GPUs, tensor parallel", f"{n_gpus:,}"),
            Control("select", "wdtype", "Weights dtype", weights, worded(WEIGHT_WORDS)),
            Control("text", "params", label, shown, about="7B, 405 billion or the exact number"),
        ],
        actions={},
        key="kv_fit",
        on_set=take,
    )


def _memory(model: Model, asked: Asked, found: Fitting, gpu: GPU, n_gpus: int) -> None:
    fit = found.fit
    where = f"{n_gpus:,} x {gpu.name}"
    over, total = fit.cache - fit.left, found.total_weights
    if fit.left < 0:
        lead = f"Not even the weights of {model.name} fit on {where}: {binary(-fit.left)} are missing on each GPU."
    elif over > 0:
        lead = f"The weights fit on {where}, the cache does not: {binary(over)} are missing on each GPU."
    else:
        lead = f"{model.name} fits on {where} with {binary(-over)} to spare on each GPU."
    each = "" if n_gpus == 1 else " on each GPU"
    facts_strip(
        [
            (f"memory{each}", binary(fit.memory), f"{fit.memory:,} B; given in {gpu.note}"),
            (f"weights{each}", binary(fit.weights), f"{fit.weights:,} B" + (f" of {total:,} B" if n_gpus > 1 else "")),
            (f"cache and states{each}", binary(fit.cache), f"{fit.cache:,} B{_copied(model, n_gpus)}"),
            ("longest context", _count(fit.longest_context, "tokens"), f"at a batch of {asked.batch:,}"),
            ("largest batch", _count(fit.largest_batch, "sequences"), f"at {asked.context:,} tokens"),
        ],
        key="kv_memory",
        lead=lead,
    )
    memory_bar(
        [("weights", fit.weights, WEIGHT_HUE), ("cache and states", fit.cache, CACHE_HUE)],
        memory=fit.memory,
        title="The memory of each GPU" if n_gpus > 1 else "The memory of the GPU",
        caption=f"Activations and what the engine itself takes are not counted: real limits are lower. {gpu.name}: "
        f"{gpu.source}.",
        recipe=app_recipe(figure="memory", model=model.name, asked=list(asked.values), gpu=gpu.name, gpus=n_gpus),
        key="kv_budget",
        file="headroom-kv-memory",
    )


def _copied(model: Model, n_gpus: int) -> str:
    """Why a GPU holds more than its even share of the cache."""
    g = model.size.kv_heads
    if n_gpus == 1 or model.size.layers_with_kv == 0:
        return ""
    if g is None:
        return "; a latent is copied to every GPU"
    return f"; {g} KV heads for {n_gpus} GPUs: some are copied" if isinstance(g, int) and g % n_gpus else ""


def _count(number: int | None, unit: str) -> str:
    return "no limit" if number is None else "none fits" if number == 0 else f"{number:,} {unit}"


def _speed(asked: Asked, found: Fitting, gpu: GPU) -> None:
    """The roofline: one step reads weights and cache once, and multiplies with them."""
    roof = found.roof
    if asked.batch == 0:
        return
    share = found.fit.cache / roof.bytes_moved if roof.bytes_moved else 0.0
    slow, fast = max(roof.memory_time, roof.compute_time), min(roof.memory_time, roof.compute_time)
    side = "reading memory" if roof.binds == "memory" else "computing"
    lead = (
        f"At best {roof.tokens_per_second:,.0f} tokens/s: {side} binds, it takes "
        f"{slow / fast:,.1f} times as long as the other side."
        if fast
        else f"At best {roof.tokens_per_second:,.0f} tokens/s: {side} binds."
    )
    facts_strip(
        [
            (
                "tokens per second, at most",
                f"{roof.tokens_per_second:,.1f}",
                f"{asked.batch:,} {'sequence' if asked.batch == 1 else 'sequences'} at once",
            ),
            ("reading memory", _milliseconds(roof.memory_time), f"at {gpu.bandwidth / 1e9:,.0f} GB/s"),
            ("computing", _milliseconds(roof.compute_time), f"at {gpu.bf16 / 1e12:,.4g} TFLOP/s, dense bf16"),
            ("read for each step", binary(roof.bytes_moved), f"{roof.bytes_moved:,} B on each GPU"),
            ("of it cache", f"{share:.1%}", "the rest are weights"),
        ],
        key="kv_speed",
        lead=lead,
        caption="A bound, not a promise: each weight and each kept number is read once a step, at the full rate.",
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.3g} ms"
