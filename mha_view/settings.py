"""What a visitor has chosen: one frozen value, read from a link and written to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from mha_core.config import (
    KNOB_D_MODEL,
    MAX_SEED,
    AttentionConfig,
    ConfigError,
    heads_problem,
    nearest,
    or_list,
    valid_choices,
)
from mha_core.masks import MASKS, Mask, SlidingWindow
from mha_core.text import MAX_TOKENS

VERSION = 1
ROTARY_BASE = 10_000.0
N_LAYERS = 3
WEIGHTS = ("trained", "random")
SCALES = ("linear", "log", "row")
MAX_WINDOW = MAX_TOKENS + 1


@dataclass(frozen=True)
class Settings:
    """The shared settings. The defaults are what a first visitor sees."""

    sentence: str = "The cat sat on the mat because it was tired."
    weights: str = "trained"
    d_model: int = 128
    n_heads: int = 8
    n_kv_heads: int = 8
    mask: str = "causal"
    window: int = 4
    seed: int = 0
    scale: str = "linear"

    def attention(self) -> AttentionConfig:
        """The attention layer these settings describe."""
        return AttentionConfig(
            d_model=self.d_model,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            rotary_base=ROTARY_BASE,
            mask=self.mask_rule(),
            seed=self.seed,
        )

    def mask_rule(self) -> Mask:
        """The mask that is chosen, with its window where it has one."""
        kind = MASKS[self.mask]
        return SlidingWindow(self.window) if kind is SlidingWindow else kind()

    def title(self) -> str:
        """The settings in one short line, without the sentence."""
        mask = f"window of {self.window}" if self.mask == "window" else f"{self.mask} mask"
        weights = f"random weights, seed {self.seed}" if self.weights == "random" else "trained weights"
        return f"d_model {self.d_model}, h {self.n_heads}, g {self.n_kv_heads}, {mask}, {weights}"


# How each setting is called in a link, and on screen.
PARAMS = {
    "sentence": "s",
    "weights": "weights",
    "d_model": "d",
    "n_heads": "h",
    "n_kv_heads": "g",
    "mask": "mask",
    "window": "window",
    "seed": "seed",
    "scale": "scale",
}
SHOWN = {"d_model": "d_model", "n_heads": "h", "n_kv_heads": "g", "window": "window", "seed": "seed"}
SIZES = ("weights", "d_model", "n_heads", "n_kv_heads")
CHOICES: dict[str, tuple[str, ...]] = {"weights": WEIGHTS, "mask": tuple(MASKS), "scale": SCALES}
DEFAULTS = Settings()


def to_params(settings: Settings) -> dict[str, str]:
    """Every setting as it stands in a link, defaults too, with the version of the link's format."""
    return {"v": str(VERSION), **{PARAMS[f.name]: str(getattr(settings, f.name)) for f in fields(Settings)}}


def from_params(params: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
    """The settings a link asks for, and a sentence for everything in it that had to be changed.

    What the link leaves out takes its default. Raises nothing: any text gives settings that work.
    """
    wished: dict[str, Any] = {}
    notices: list[str] = []
    for name, param in PARAMS.items():
        if param not in params:
            continue
        text = params[param]
        if name == "sentence":
            wished[name] = text
        elif name in CHOICES:
            wished[name], notice = _choice(param, text, CHOICES[name], getattr(DEFAULTS, name))
            notices += notice
        else:
            number = whole_number(text)
            if number is None:
                number = getattr(DEFAULTS, name)
                why = f"The link asks for {SHOWN[name]} = {shorten(text)}, which is no whole number"
                notices.append(f"{why}; {number} is taken instead.")
            wished[name] = number
    settings, moved = settle(replace(DEFAULTS, **wished), asked=frozenset(wished))
    return settings, (*notices, *moved, *_version_notice(params))


def settle(wished: Settings, asked: frozenset[str] = frozenset(PARAMS)) -> tuple[Settings, tuple[str, ...]]:
    """The nearest settings that work, and a sentence for each of the ``asked`` values that had to move."""
    notices: list[str] = []

    def move(settings: Settings, name: str, value: int, why: str) -> Settings:
        if name in asked:
            notices.append(f"{why} {SHOWN[name]} = {value} is shown.")
        return replace(settings, **{name: value})

    settings = wished
    if settings.d_model not in KNOB_D_MODEL:
        why = f"d_model = {digits(settings.d_model)} is not offered; d_model can be {or_list(KNOB_D_MODEL)}."
        settings = move(settings, "d_model", nearest(settings.d_model, KNOB_D_MODEL)[0], why)
    heads = valid_choices(settings.d_model, 1, rotary=True).n_heads
    if settings.n_heads not in heads:
        settings = move(settings, "n_heads", nearest(settings.n_heads, heads)[0], _why_heads(settings, heads))
    kv_heads = valid_choices(settings.d_model, settings.n_heads, rotary=True).n_kv_heads
    if settings.n_kv_heads not in kv_heads:
        value = nearest(settings.n_kv_heads, kv_heads)[0]
        settings = move(settings, "n_kv_heads", value, _why_kv_heads(settings, kv_heads))
    for name, low, high in (("window", 1, MAX_WINDOW), ("seed", 0, MAX_SEED)):
        value = getattr(settings, name)
        if not low <= value <= high:
            why = f"{name} = {digits(value)} is out of range; {name} can be {low:,} to {high:,}."
            settings = move(settings, name, min(max(value, low), high), why)
    return settings, tuple(notices)


def whole_number(text: str) -> int | None:
    """``text`` as a whole number ("8", "-1", "1e9"), or None when it is none."""
    text = text.strip()
    if not text or len(text) > 40:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() and abs(number) < 1e18 else None


def shorten(text: str, limit: int = 24) -> str:
    """A strange value from a link, quoted, and cut so that it cannot fill the page."""
    return f"\u201c{text if len(text) <= limit else text[:limit] + '...'}\u201d"


def digits(number: int) -> str:
    """A whole number with thousands apart; a monstrous one by its number of digits."""
    return f"{number:,}" if abs(number) < 10**15 else f"a number of {len(str(abs(number)))} digits"


def _why_heads(settings: Settings, heads: tuple[int, ...]) -> str:
    """Why this h cannot be shown: in the core's words where the core refuses it, else what the knob offers."""
    d_model, n_heads = settings.d_model, settings.n_heads
    if 0 < n_heads <= d_model and d_model % n_heads:
        return heads_problem(d_model, n_heads, heads).message
    if 0 < n_heads <= d_model:
        try:
            replace(settings, n_kv_heads=n_heads).attention()
        except ConfigError as error:
            return error.problems[0].message
    return f"h = {digits(n_heads)} is not offered; with d_model = {d_model}, h can be {or_list(heads)}."


def _why_kv_heads(settings: Settings, kv_heads: tuple[int, ...]) -> str:
    """Why this g cannot be shown, and which would do."""
    why = "does not divide" if settings.n_kv_heads > 0 else "does not work with"
    return f"g = {digits(settings.n_kv_heads)} {why} h = {settings.n_heads}; g can be {or_list(kv_heads)}."


def _choice(param: str, text: str, options: tuple[str, ...], default: str) -> tuple[str, list[str]]:
    if text in options:
        return text, []
    return default, [
        f"The link asks for {param} = {shorten(text)}; {param} can be {or_list(options)}. {default} is shown."
    ]


def _version_notice(params: Mapping[str, str]) -> tuple[str, ...]:
    version = whole_number(params.get("v", str(VERSION)))
    if version == VERSION:
        return ()
    return (f"The link was made by another version of Headroom (format {shorten(params['v'])}, this is {VERSION}).",)
