"""Frozen values in JSON files: written in few digits, and read back with every field checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints


def build(kind: Any, value: Any) -> Any:
    """A JSON value as a plain value, a tuple, a frozen dataclass, or None where ``kind`` allows it.

    Raises TypeError or ValueError for a value that is none of that kind.
    """
    if get_origin(kind) is UnionType:
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
        return None if value is None else build(kind, value)
    if kind in (int, float, str):
        _expect(type(value) is kind or (kind is float and type(value) is int), kind, value)
        return kind(value)
    if get_origin(kind) is tuple:
        _expect(isinstance(value, list), list, value)
        inner = get_args(kind)
        inner = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(build(one, item) for one, item in zip(inner, value, strict=True))
    _expect(isinstance(value, dict), kind, value)
    kinds = _kinds(kind)
    if absent := [name for name in kinds if name not in value]:
        raise ValueError(f"{kind.__name__} lacks {', '.join(absent)}")
    return kind(**{name: build(inner, value[name]) for name, inner in kinds.items()})


@cache
def _kinds(kind: type) -> dict[str, Any]:
    """The fields of a dataclass and what they hold; kept, for a file of many heads asks the same again and again."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def rounded(value: Any, shorten: Callable[[float], float]) -> Any:
    """The same value, dicts and lists within it too, with every fraction shortened."""
    if isinstance(value, dict):
        return {key: rounded(item, shorten) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item, shorten) for item in value]
    return shorten(value) if isinstance(value, float) else value


def _expect(fits: bool, kind: type, value: object) -> None:
    if not fits:
        raise TypeError(f"expected {kind.__name__}, found {value!r:.40}")
