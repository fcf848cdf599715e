"""What a visitor chose on the page KV cache: typed numbers, a model by its name, and the pasted config.

A pasted text lies in the visitor's own session and in the link, nowhere else: it is not logged, written to a file or
put into a cache that visitors share.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from mha_core.kv_size import KVCacheSize, ReadError, read_config
from mha_view.kv import KNOBS, PASTED
from mha_view.numbers import Span, Typed, settled
from mha_view.pasted import file_text, packed_text, unpacked_text
from mha_view.settings import shorten
from mha_view.state.session import pick_choice, resolve, tell

SOURCES = (KNOBS, "preset", PASTED)
MAX_TYPED = 6_000
MAX_OTHERS = 3
BETWEEN = "~"
# What was typed for one model means nothing for the next.
FORGOTTEN_WITH_MODEL = ("params",)


@dataclass(frozen=True)
class Pasted:
    """The text in the box, its part in a link (None: too long for one), and what it says: a size or a sentence."""

    text: str = ""
    code: str | None = ""
    size: KVCacheSize | None = None
    problem: str = ""


def typed_number(name: str, span: Span, default: int) -> Typed:
    """A number that was typed, as it can be used; a number that nobody typed stays out of the link."""
    text = st.session_state["_picks"].get(name)
    number = settled(text, span, default)
    if text is not None:
        resolve(name, number.value)
    return number


def set_typed(name: str, value: object) -> None:
    """Remember what was typed; an emptied line takes the default again."""
    picks = st.session_state["_picks"]
    if isinstance(value, str) and not value.strip():
        picks.pop(name, None)
    elif isinstance(value, str) and len(value) <= MAX_TYPED:
        picks[name] = value


def source() -> str:
    """Where the model comes from: the knobs, a published one, or a pasted config."""
    picks = st.session_state["_picks"]
    default = PASTED if picks.get("config") else "preset" if "model" in picks else KNOBS
    return pick_choice("src", SOURCES, default)


def set_source(value: object, defaults: Mapping[str, str]) -> None:
    """Choose where the model comes from; ``defaults``: what the old model is shown with unless asked otherwise."""
    if isinstance(value, str) and value in SOURCES:
        _leave_model(defaults)
        st.session_state["_picks"]["src"] = value


def model_name(names: Sequence[str], default: str) -> str:
    """The published model that is chosen; a link to another name gets the most similar one, and is told."""
    name = st.session_state["_picks"].get("model", default)
    if name not in names:
        near = (difflib.get_close_matches(name[:80], names, 1, 0.0) or [default])[0]
        st.session_state["_picks"]["model"] = near
        tell(f"The link asks for model = {shorten(name)}, which is not among the {len(names)} here. {near} is shown.")
        name = near
    return resolve("model", name)


def select_model(names: Sequence[str], name: str, defaults: Mapping[str, str]) -> None:
    """The list of published models; typing in it searches."""
    st.session_state["kv_model"] = name

    def store() -> None:
        choose_model(st.session_state["kv_model"], defaults)

    st.selectbox(f"Published model ({len(names)}; type to search)", names, key="kv_model", on_change=store)


def choose_model(name: str, defaults: Mapping[str, str]) -> None:
    """Show a published model; for callbacks."""
    _leave_model(defaults)
    st.session_state["_picks"].update(src="preset", model=name)


def _leave_model(defaults: Mapping[str, str]) -> None:
    """What only the old model stood for (its own limit, its own dtype) does not stay with the new one."""
    picks = st.session_state["_picks"]
    for name in FORGOTTEN_WITH_MODEL:
        picks.pop(name, None)
    for name, value in defaults.items():
        if picks.get(name) == value:
            picks.pop(name)


def others(names: Sequence[str], shown: str) -> tuple[str, ...]:
    """The models to compare with, up to three and without the one that is shown; unknown names are told."""
    text = st.session_state["_picks"].get("others", "")
    asked = list(dict.fromkeys(filter(None, text[:MAX_TYPED].split(BETWEEN))))
    wrong = [shorten(name) for name in asked if name not in names and name != shown]
    found = [name for name in asked if name in names and name != shown][:MAX_OTHERS]
    if wrong:
        tell(f"The link compares with {', '.join(wrong[:3])}, which is not here.")
    if found != asked:
        st.session_state["_picks"]["others"] = BETWEEN.join(found)
    if found:
        resolve("others", BETWEEN.join(found))
    return tuple(found)


def select_others(names: Sequence[str], chosen: Sequence[str], words: Mapping[str, str]) -> None:
    """The list to choose the models to compare with; ``words`` for names that are no published model's."""
    st.session_state["kv_others"] = list(chosen)

    def store() -> None:
        st.session_state["_picks"]["others"] = BETWEEN.join(st.session_state["kv_others"])

    label = f"Compare with (up to {MAX_OTHERS} more; type to search)"
    st.multiselect(
        label,
        names,
        format_func=lambda name: words.get(name, name),
        key="kv_others",
        on_change=store,
        max_selections=MAX_OTHERS,
    )


def pasted() -> Pasted:
    """The pasted text as it was read last; on the first rerun of a session, the one that the link carries."""
    session = st.session_state
    if "_pasted" not in session:
        code = session["_picks"].get("config", "")
        text = unpacked_text(code) if code else ""
        if text is None:
            tell("The config in the link is damaged and could not be read.")
        # An empty box is an invitation, not a mistake.
        session["_pasted"] = Pasted()
        if text:
            _read(text)
    found: Pasted = session["_pasted"]
    if found.code:
        resolve("config", found.code)
    return found


def paste_box() -> None:
    """The box for the text of a config.json, and the place to pick a file instead."""
    if "kv_text" not in st.session_state:
        st.session_state["kv_text"] = st.session_state["_pasted"].text
    upload = f"kv_file_{st.session_state.get('_uploads', 0)}"

    def store() -> None:
        _read(st.session_state["kv_text"] or "")

    left, right = st.columns([2, 1])
    left.text_area("config.json (paste it, then Ctrl+Enter)", key="kv_text", height=130, on_change=store)
    right.file_uploader("or pick the file", key=upload, on_change=_take_file, args=(upload,))


def _take_file(upload: str) -> None:
    """Move a picked file's text into the box; the file itself is let go at once."""
    file = st.session_state.get(upload)
    if file is None:
        return
    data = file.getvalue()
    st.session_state["_uploads"] = st.session_state.get("_uploads", 0) + 1
    text = file_text(data)
    if text is None:
        size, problem = _answer(data)
        st.session_state["_pasted"] = Pasted(size=size, problem=problem)
        st.session_state["kv_text"] = ""
        return
    st.session_state["kv_text"] = text
    _read(text)


def _read(text: str) -> None:
    """Read a new text once; every rerun after it finds the answer."""
    size, problem = _answer(text)
    st.session_state["_pasted"] = Pasted(text, packed_text(text), size, problem)


def _answer(source: str | bytes) -> tuple[KVCacheSize | None, str]:
    try:
        return read_config(source), ""
    except ReadError as error:
        return None, str(error)
