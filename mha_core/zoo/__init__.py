"""Shipped weights: a safetensors file each, with a card that says how it was made and what it can do.

The weights are stored in half precision and loaded as float32. A card belongs to exactly one file: it holds the
file's SHA-256, so that figures and weights cannot drift apart.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from mha_core.config import ConfigError
from mha_core.text import Vocabulary
from mha_core.training.recipe import Recipe
from mha_core.training.scores import Evaluation, Gates, TaskScores
from mha_core.transformer import Transformer
from mha_core.zoo.jsons import build, rounded

FOLDER = Path(__file__).parent
SEEDS_FILE = "seeds.jsonl"
DIGITS = 4


class ZooError(Exception):
    """Raised for shipped weights that cannot be used; the message names the file and what to do."""


@dataclass(frozen=True)
class Tried:
    """One training run: its seed, the two numbers of the recipe that were searched, and the figures it reached."""

    seed: int
    learning_rate: float
    embedding_std: float
    reached: Gates


@dataclass(frozen=True)
class Card:
    """What is known about a weights file.

    recipe: everything needed to train it again. parameters: how many numbers the file holds. words: its vocabulary,
    row by row. sha256: of the weights file. figures: measured on the stored weights. tried: every finished run, also
    those that were not kept.
    """

    name: str
    recipe: Recipe
    parameters: int
    words: tuple[str, ...]
    sha256: str
    figures: Evaluation
    tried: tuple[Tried, ...]
    date: str
    torch_version: str

    @property
    def vocabulary(self) -> Vocabulary:
        """The words, ready to read a sentence."""
        return Vocabulary(self.words)


@dataclass(frozen=True)
class SeedRun:
    """What one more seed of a setting reached; its weights were not kept."""

    d_model: int
    n_heads: int
    n_kv_heads: int
    seed: int
    tasks: TaskScores
    reached: Gates


def model_name(d_model: int, n_heads: int, n_kv_heads: int) -> str:
    """What the grammar model of a setting is called: "grammar-d128-h8-g8"."""
    return f"grammar-d{d_model}-h{n_heads}-g{n_kv_heads}"


def available(folder: Path = FOLDER) -> list[Card]:
    """The cards of all shipped weights, by name; raises ZooError for a card that cannot be read."""
    return [_read_card(path) for path in sorted(folder.glob("*.json"))]


def scan(folder: Path = FOLDER) -> tuple[list[Card], list[str]]:
    """The cards that can be read, and a sentence for each that cannot: one bad file must not hide the others."""
    cards, problems = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            cards.append(_read_card(path))
        except ZooError as error:
            problems.append(str(error))
    return cards, problems


def find(d_model: int, n_heads: int, n_kv_heads: int, folder: Path = FOLDER) -> Card | None:
    """The card of a setting, or None where no weights are shipped for it."""
    path = folder / f"{model_name(d_model, n_heads, n_kv_heads)}.json"
    return _read_card(path) if path.exists() else None


def load(name: str, folder: Path = FOLDER) -> tuple[Transformer, Card]:
    """A trained model and its card; raises ZooError for a file that is missing, changed or of another shape."""
    card = _read_card(folder / f"{name}.json")
    path = folder / f"{name}.safetensors"
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != card.sha256:
        raise ZooError(f"{path.name} is not the file its card describes (it was cut off or edited); {_fix(name)}.")
    try:
        model = Transformer(card.recipe.config(len(card.words)))
        weights = load_tensors(data)
    except (ConfigError, SafetensorError) as error:
        raise ZooError(f"{path.name} cannot be loaded ({error}); {_fix(name)}.") from error
    _check_shapes(path, weights, model.state_dict())
    model.load_state_dict(weights)
    return model.eval().requires_grad_(False), card


def load_card(name: str, folder: Path = FOLDER) -> Card:
    """The card of a model by name; raises ZooError where it is missing or cannot be read."""
    return _read_card(folder / f"{name}.json")


def seed_runs(folder: Path = FOLDER) -> tuple[SeedRun, ...]:
    """What other seeds reached, in the order in which they were trained; raises ZooError for an unreadable line."""
    path = folder / SEEDS_FILE
    if not path.exists():
        return ()
    try:
        return tuple(build(SeedRun, json.loads(line)) for line in _read(path).splitlines())
    except (ValueError, TypeError) as error:
        raise ZooError(f"{path.name} cannot be read ({error}); run `make train-grid` without it.") from error


def add_seed_run(run: SeedRun, folder: Path = FOLDER) -> None:
    """Write one more line; short lines are written in one piece, so several threads may do so at once."""
    with (folder / SEEDS_FILE).open("a") as file:
        file.write(json.dumps(rounded(asdict(run), _digits)) + "\n")


def pack(model: Transformer) -> tuple[bytes, Transformer]:
    """A model as the bytes of a weights file, and the model that those bytes give back: rounded to half precision."""
    halves = {name: tensor.half().contiguous() for name, tensor in model.state_dict().items()}
    rounded = Transformer(model.cfg)
    rounded.load_state_dict(halves)
    return save_tensors(halves), rounded.eval().requires_grad_(False)


def store(weights: bytes, card: Card, folder: Path = FOLDER) -> tuple[Path, Path]:
    """Write a weights file and its card; returns their paths."""
    assert hashlib.sha256(weights).hexdigest() == card.sha256, "a card belongs to its weights"
    weights_path, card_path = (folder / f"{card.name}.{suffix}" for suffix in ("safetensors", "json"))
    weights_path.write_bytes(weights)
    card_path.write_text(json.dumps(rounded(asdict(card), _digits), indent=1) + "\n")
    return weights_path, card_path


def _fix(name: str) -> str:
    """What to run to have a model again: its sizes stand in its name."""
    sizes = re.fullmatch(r"grammar-d(\d+)-h(\d+)-g(\d+)", name)
    knobs = "" if sizes is None else f" D={sizes[1]} H={sizes[2]} G={sizes[3]}"
    return f"run `make train{knobs}` to make it again"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ZooError(f"{path.name} is missing or cannot be read; {_fix(path.stem)}.") from error


def _read_card(path: Path) -> Card:
    try:
        card = build(Card, json.loads(_read(path)))
        # Words that make no vocabulary are found here and not by the first sentence.
        assert isinstance(card.vocabulary, Vocabulary)
    except (ValueError, TypeError) as error:
        raise ZooError(f"{path.name} is not a card that this version can read ({error}); {_fix(path.stem)}.") from error
    return card


def _check_shapes(path: Path, weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    for name in sorted(weights.keys() | expected.keys()):
        found, wanted = (tuple(t[name].shape) if name in t else "absent" for t in (weights, expected))
        if found != wanted:
            raise ZooError(f"{path.name} does not fit its card: {name} is {found}, not {wanted}; {_fix(path.stem)}.")


def _digits(value: float) -> float:
    """A figure without the digits that mean nothing."""
    return round(value, DIGITS)
