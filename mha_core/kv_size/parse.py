"""Text to a dict: what people paste is read leniently, and every liberty is noted."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mha_core.kv_size.values import HugeNumber, ReadError, shown

MAX_CHARS = 16_000_000
# Beyond this a text is parsed as strict JSON only: the lenient passes are for what people paste by hand.
MAX_LENIENT = 200_000
MAX_DIGITS = 400

STRING = r'"(?:\\.|[^"\\])*(?:"|\Z)'
COMMENT = re.compile(rf"({STRING})|(//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z))", re.DOTALL)
COMMA = re.compile(rf"({STRING})|(,(?=\s*[}}\]]))", re.DOTALL)
CLASS_NAME = re.compile(r"\s*([A-Za-z_]\w{0,80})\s*(?=\{)")
MODEL_ID = re.compile(r'\s*"?[\w.-]{1,96}/[\w.-]{1,96}"?\s*')
YAML = re.compile(r"\s*[\w-]+:\s")
FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)(?:```|\Z)", re.DOTALL)
KINDS = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "a truth value", type(None): "null"}


@dataclass(frozen=True)
class Parsed:
    """The object in the text, and a sentence for each liberty that was taken."""

    fields: dict[str, Any]
    notes: tuple[str, ...] = ()


def parse(source: str | bytes | dict[str, Any]) -> Parsed:
    """The config in ``source``: JSON, or what people paste for it. Raises ReadError."""
    if isinstance(source, dict):
        return Parsed({key: value for key, value in source.items() if isinstance(key, str)})
    if len(source) > MAX_CHARS:
        raise ReadError(f"The text is too big: its size is {len(source):,}, the limit is {MAX_CHARS:,}.")
    text, notes = _decoded(source) if isinstance(source, bytes) else (source, [])
    text = text.removeprefix("\ufeff")
    _refuse_other_texts(text)
    text, unwrapped = _unwrapped(text)
    try:
        value = _loaded(text, notes + unwrapped)
    except (RecursionError, MemoryError):
        raise ReadError("The text is too deeply nested to be a config.json.") from None
    return value


def _decoded(data: bytes) -> tuple[str, list[str]]:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            return data.decode("utf-16"), ["The file is UTF-16; it was read as such."]
        except UnicodeDecodeError:
            pass
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        raise ReadError(
            "The file is not UTF-8 text; perhaps a .safetensors or .gguf file was picked instead of config.json."
        ) from None


def _refuse_other_texts(text: str) -> None:
    start = text[:200].lstrip()
    if not text.strip():
        raise ReadError("The text is empty; paste the config.json of a model.")
    if start.startswith("<"):
        raise ReadError("This is an HTML page, not a config.json; perhaps a 404 or log-in page was saved.")
    if len(text) < 500 and (MODEL_ID.fullmatch(text) or start.startswith("http")):
        raise ReadError(f"{shown(text)} looks like the name or address of a model; paste the text of its config.json.")
    if "\0" in text[:1000]:
        raise ReadError("The file is not UTF-8 text; perhaps a .safetensors or .gguf file was picked.")


def _unwrapped(text: str) -> tuple[str, list[str]]:
    """The text without a markdown fence or a class name around it."""
    notes: list[str] = []
    if text.lstrip().startswith("```") and (found := FENCE.search(text)):
        text = found[1]
        notes.append("The ``` fence around the text was left out.")
    if found := CLASS_NAME.match(text):
        text = text[found.end() :]
        notes.append(f"The class name {shown(found[1])} before the object was left out.")
    return text, notes


def _loaded(text: str, notes: list[str]) -> Parsed:
    try:
        return _strict(text, notes)
    except json.JSONDecodeError as error:
        for mend in (_without_comments, _as_python) if len(text) <= MAX_LENIENT else ():
            found = mend(text, notes)
            if found is not None:
                return found
        raise ReadError(_why_not_json(text, error)) from None


def _strict(text: str, notes: list[str]) -> Parsed:
    """Strict JSON; numbers that Python refuses to read and keys given twice are kept in sight."""
    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            seen: set[str] = set()
            twice.extend(key for key, _ in items if key in seen or seen.add(key))
        return found

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Python refuses to read numbers of more than 4,300 digits; this is slower, and keeps them in sight.
        value = json.loads(text, parse_int=_number, object_pairs_hook=pairs)
    if not isinstance(value, dict):
        one = "; paste the object inside it" if isinstance(value, list) and len(value) == 1 else ""
        raise ReadError(f"A config.json is an object in braces, and this is {KINDS[type(value)]}{one}.")
    found = [f"{shown(key)} appears twice; the last value counts." for key in dict.fromkeys(twice[:3])]
    return Parsed(value, (*notes, *found))


def _number(digits: str) -> int | HugeNumber:
    return int(digits) if len(digits) <= MAX_DIGITS else HugeNumber(len(digits.lstrip("-")))


def _without_comments(text: str, notes: list[str]) -> Parsed | None:
    bare, n_comments, first = _cut(COMMENT, text)
    bare, n_commas, comma = _cut(COMMA, bare)
    found = list(notes)
    if n_comments:
        found.append(f"JSON has no comments; {n_comments:,} left out, the first in line {first:,}.")
    if n_commas:
        found.append(f"A comma before a closing bracket in line {comma:,} was left out.")
    try:
        return _strict(bare, found)
    except json.JSONDecodeError:
        return None


def _cut(pattern: re.Pattern[str], text: str) -> tuple[str, int, int]:
    """The text without what the second bracket finds, how often that was, and the line of the first."""
    where = [match.start() for match in pattern.finditer(text) if match[1] is None]
    line = text.count("\n", 0, where[0]) + 1 if where else 0
    # Line breaks stay, so that lines keep their numbers.
    cut: Callable[[re.Match[str]], str] = lambda m: m[1] if m[1] is not None else "\n" * m[2].count("\n")  # noqa: E731 -- typed for pyright
    return pattern.sub(cut, text), len(where), line


def _as_python(text: str, notes: list[str]) -> Parsed | None:
    """A Python dict as print() shows it: literals only, nothing is run."""
    if "'" not in text and "None" not in text and "True" not in text and "False" not in text:
        return None
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError):
        return None
    if not isinstance(value, dict):
        return None
    fields = {key: value for key, value in value.items() if isinstance(key, str)}
    return Parsed(fields, (*notes, "This is a Python dict, not JSON; it was read as one."))


def _why_not_json(text: str, error: json.JSONDecodeError) -> str:
    if YAML.match(text) and not text.lstrip().startswith(("{", "[")):
        return "This is not JSON (it looks like YAML); paste the config.json."
    ends = "; the text ends early" if error.pos >= len(text.rstrip()) else ""
    return f"This is not valid JSON: {error.msg} in line {error.lineno:,}, column {error.colno:,}{ends}."
