"""The tests, and the checker that holds every shape in a signature against the tensors that come."""

from collections.abc import Callable
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the shapes in a signature and nothing else (named in pyproject.toml as jaxtyping's type checker).

    Other types are left to pyright: a config must get wrong types to answer them with a sentence.
    """
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if _has_shape(hint)}
    return beartype(function)


def _has_shape(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_has_shape(part) for part in get_args(hint))
