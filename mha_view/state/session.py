"""What one visitor has chosen: widget keys, query parameters, and a page's own picks.

The session holds what a visitor has chosen, the address bar mirrors it. A link is read once, when a session starts:
every real link, reload or typed address starts one, so a later change of the address is Back or Forward and undoes no
choice. The mirror is written by the link component with ``history.replaceState`` (docs/adr/0003).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from mha_core.analysis.pruning import Head
from mha_core.text import word_spans
from mha_view import results
from mha_view.settings import (
    CHOICES,
    DEFAULTS,
    PARAMS,
    SHOWN,
    SIZES,
    Settings,
    from_params,
    settle,
    shorten,
    to_params,
    whole_number,
)

PICKS = ("layer", "head", "row", "key", "view", "first", "other", "pin", "off", "order", "figure", "x", "y", "measure")
PICKS += ("preset", "step", "col", "without", "swap", "with", "stage", "word", "against")
PICKS += ("matrix", "fold", "from", "guess", "time_n", "time_d", "time_h")
# Those of the page KV cache.
PICKS += ("src", "model", "config", "ctx", "batch", "dtype", "engine", "gpu", "gpus", "wdtype", "params", "others")
PICKS += ("along", "axis", "rank", "span", "part", "pool")
MAX_HEADS_OFF = 1_000
MOST_OPTIONS_TOLD = 12
STREAMLIT_PARAMS = ("embed", "embed_options")
# A pick belongs to what it was picked in: another sentence has other rows, other sizes have other heads.
FORGOTTEN_WITH_SENTENCE = ("row", "key", "col")
FORGOTTEN_WITH_SIZES = ("layer", "head", "other", "off", "col", "without", "swap", "with", "from", "stage", "pool")


def open_page(page: str) -> Settings:
    """What the visitor has chosen, as of this rerun; call it once, before any widget is made."""
    params = {name: value for name, value in st.query_params.to_dict().items() if name not in STREAMLIT_PARAMS}
    session = st.session_state
    if "_settings" not in session:
        _adopt(params)
    else:
        _follow_widgets()
        _tell_streamlit(page, params)
    session["_page"] = page
    session["_resolved"] = {}
    return session["_settings"]


def close_page() -> dict[str, str]:
    """Everything the address bar should say after this rerun."""
    session = st.session_state
    wanted = {**to_params(session["_settings"]), **session["_resolved"]}
    session["_wanted"] = wanted
    return wanted


def set_settings(**changes: Any) -> None:
    """Choose for the visitor (an example, a reset, a trained setting); for callbacks, before widgets are made."""
    for name, value in changes.items():
        st.session_state[widget_key(name)] = value


def set_checked(name: str, value: object) -> None:
    """Choose what a control reported, if it is of the right kind; whether it works is settled on the next rerun."""
    if name in CHOICES:
        if isinstance(value, str) and value in CHOICES[name]:
            set_settings(**{name: value})
    elif name in SHOWN and (number := _sound(value)) is not None:
        set_settings(**{name: number})


def set_sizes(reported: Mapping[str, object]) -> None:
    """Choose the weights and knobs that a note offered."""
    for name in SIZES:
        set_checked(name, reported.get(name))


def replace_word(word: str, other: str) -> None:
    """Put ``other`` where the visitor typed ``word`` as a token of its own, everywhere in the sentence."""
    text: str = st.session_state["_settings"].sentence
    for start, end in reversed(list(word_spans(text))):
        if text[start:end] == word:
            text = text[:start] + other + text[end:]
    set_settings(sentence=text)


def reset() -> None:
    """Back to what a first visitor sees."""
    st.session_state["_picks"] = {}
    set_settings(**{f.name: getattr(DEFAULTS, f.name) for f in fields(Settings)})


def widget_key(name: str) -> str:
    """The key of the widget that owns a shared setting."""
    return f"setting_{name}"


def notices() -> tuple[str, ...]:
    """Sentences about what a link asked for or a knob moved, until the next change of settings."""
    return st.session_state["_notices"]


def pick_number(name: str, low: int, high: int, default: int) -> int:
    """A page's own choice as a number from ``low`` to ``high``; a link beyond it is told, and gets the default."""
    text = st.session_state["_picks"].get(name)
    number = None if text is None else whole_number(text)
    if text is not None and (number is None or not low <= number <= high):
        wrong = f"The link asks for {name} = {shorten(text)}; {name} can be {low} to {high}. {default} is shown."
        _complain(name, wrong)
        number = None
    return resolve(name, default if number is None else number)


def pick_choice(name: str, options: tuple[str, ...], default: str) -> str:
    """A page's own choice out of ``options``; a link with another word is told, and gets the default."""
    text = st.session_state["_picks"].get(name)
    if text is not None and text not in options:
        offered = ", ".join(
            options if len(options) <= MOST_OPTIONS_TOLD else (*options[:3], f"... ({len(options)} in all)")
        )
        wrong = f"The link asks for {name} = {shorten(text)}; {name} can be {offered}. {default} is shown."
        _complain(name, wrong)
        text = None
    return resolve(name, default if text is None else text)


def select_control(name: str, label: str, options: Mapping[str, str], default: str) -> str:
    """A page's own choice with a list to choose from: option -> words in the list."""
    value, key = pick_choice(name, tuple(options), default), f"pick_{name}"
    st.session_state[key] = value

    def store() -> None:
        st.session_state["_picks"][name] = st.session_state[key]

    st.selectbox(label, list(options), format_func=options.__getitem__, key=key, on_change=store)
    return value


def set_picks(**numbers: object) -> None:
    """Remember what was clicked in a picture; anything but small whole numbers is ignored."""
    for name, number in numbers.items():
        if isinstance(number, (int, float)) and not isinstance(number, bool) and abs(number) < 10**6:
            st.session_state["_picks"][name] = str(int(number))


def set_pick_choice(name: str, value: object, options: Collection[str]) -> None:
    """Remember a word that was chosen in a bar, if it is one of ``options``."""
    if isinstance(value, str) and value in options:
        st.session_state["_picks"][name] = value


def go_to(page: str, **places: int) -> None:
    """Open another page on the next rerun, with these places picked; for callbacks."""
    set_picks(**places)
    st.session_state["_go"] = page


def go_to_text(page: str, text: str, **places: int) -> None:
    """Open another page with another sentence and these places in it; for callbacks."""
    set_settings(sentence=text)
    # As if it had been chosen already: a sentence that changes forgets the row and key that were picked in the old one.
    st.session_state["_settings"] = replace(st.session_state["_settings"], sentence=text)
    go_to(page, **places)


def wanted_page() -> str | None:
    """The page a callback asked for, once."""
    return st.session_state.pop("_go", None)


def heads_off(n_layers: int, n_heads: int) -> tuple[Head, ...]:
    """The heads that are switched off, in order; a link to a head that is not there is told."""
    text = st.session_state["_picks"].get("off", "")
    found, wrong = set(), []
    for part in filter(None, text.split("-")):
        layer, _, head = part.partition(".")
        place = whole_number(layer), whole_number(head)
        if place[0] in range(n_layers) and place[1] in range(n_heads):
            found.add(place)
        else:
            wrong.append(shorten(part))
    if wrong:
        more = "" if len(wrong) <= 3 else f" and {len(wrong) - 3} more"
        last = f"{n_layers - 1}.{n_heads - 1}"
        told = f"The link switches off {', '.join(wrong[:3])}{more}; this model has heads 0.0 to {last} (layer.head)."
        _complain("off", told)
    set_heads_off(found)
    resolve("off", "-".join(f"{layer}.{head}" for layer, head in sorted(found)))
    return tuple(sorted(found))


def set_heads_off(off: object) -> None:
    """Remember which heads are off, as pairs of layer and head; what is no such list is ignored."""
    if not isinstance(off, (list, tuple, set, frozenset)) or len(off) > MAX_HEADS_OFF:
        return
    places = [_head(place) for place in off]
    if None not in places:
        st.session_state["_picks"]["off"] = "-".join(f"{layer}.{head}" for layer, head in filter(None, places))


def _head(place: object) -> Head | None:
    if not isinstance(place, (list, tuple)) or len(place) != 2:
        return None
    layer, head = (_sound(number) for number in place)
    return None if layer is None or head is None else (layer, head)


def drop_picks(*names: str) -> None:
    """Forget a page's own choices, so that they take their defaults."""
    _forget(names)


def component_value(key: str, name: str) -> dict[str, Any]:
    """What a component reported last under ``name``, or an empty dict."""
    value = getattr(st.session_state.get(key), name, None)
    return value if isinstance(value, dict) else {}


def pin(settings: Settings, layer: int, head: int) -> None:
    """Keep a view to compare others with."""
    st.session_state["_picks"]["pin"] = urlencode({**to_params(settings), "layer": layer, "head": head})


def unpin() -> None:
    """Forget the pinned view."""
    st.session_state["_picks"].pop("pin", None)


def pinned() -> tuple[Settings, int, int] | None:
    """The pinned view: its settings, layer and head; None when nothing is pinned."""
    text = st.session_state["_picks"].get("pin")
    if text is None:
        return None
    params = dict(parse_qsl(text, keep_blank_values=True))
    settings, _ = from_params(params)
    resolve("pin", text)
    layer, head = (whole_number(params.get(name, "")) for name in ("layer", "head"))
    n_layers = results.N_LAYERS
    return settings, min(max(layer or 0, 0), n_layers - 1), min(max(head or 0, 0), settings.n_heads - 1)


def _adopt(params: Mapping[str, str]) -> None:
    """Take over what a link says."""
    session = st.session_state
    settings, told = from_params(params)
    known = {"v", *PARAMS.values(), *PICKS}
    unknown = [shorten(name) for name in params if name not in known]
    if unknown:
        told = (*told, f"The link has parts that mean nothing here: {', '.join(unknown[:5])}.")
    session["_settings"], session["_notices"] = settings, told
    session["_picks"] = {name: params[name] for name in PICKS if name in params}
    set_settings(**{f.name: getattr(settings, f.name) for f in fields(Settings)})


def _follow_widgets() -> None:
    """Take over what the controls say, moving h and g where they no longer fit."""
    session = st.session_state
    before: Settings = session["_settings"]
    values = {f.name: session.get(widget_key(f.name)) for f in fields(Settings)}
    chosen = replace(before, **{name: value for name, value in values.items() if value is not None})
    settings, told = settle(chosen)
    if told or settings != before:
        session["_notices"] = told
        changed = {f.name for f in fields(Settings) if getattr(settings, f.name) != getattr(before, f.name)}
        if "sentence" in changed:
            _forget(FORGOTTEN_WITH_SENTENCE)
        if changed & set(SIZES):
            _forget(FORGOTTEN_WITH_SIZES)
    session["_settings"] = settings
    set_settings(**{f.name: getattr(settings, f.name) for f in fields(Settings)})


def _sound(value: object) -> int | None:
    """A reported number as a whole number; None for what no honest control sends."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if abs(value) < 10**15 and value == int(value) else None


def _forget(names: tuple[str, ...]) -> None:
    for name in names:
        st.session_state["_picks"].pop(name, None)


def _tell_streamlit(page: str, params: Mapping[str, str]) -> None:
    """Let Streamlit know the address that the mirror wrote, for its reconnects and its menu.

    Not on the rerun that opens a page: there the mirror has not written yet, and Streamlit would add a history entry.
    """
    wanted = st.session_state.get("_wanted")
    if wanted is not None and page == st.session_state.get("_page") and dict(params) != wanted:
        st.query_params.from_dict(wanted)


def tell(sentence: str) -> None:
    """Add a sentence to what the page says on top."""
    st.session_state["_notices"] = (*st.session_state["_notices"], sentence)


def _complain(name: str, sentence: str) -> None:
    st.session_state["_picks"].pop(name, None)
    tell(sentence)


def resolve(name: str, value: Any) -> Any:
    """Let the link say what is shown; returns it."""
    st.session_state["_resolved"][name] = str(value)
    return value
