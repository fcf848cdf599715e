"""From settings to a finished run: the model, the trace, the checks. Knows no screen and keeps no state."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from mha_core import zoo
from mha_core.checks import Check, check_run
from mha_core.device import best_device, device_name
from mha_core.params import attention_parameters, kv_cache_bytes_per_token, model_parameters
from mha_core.text import Tokens, Vocabulary
from mha_core.trace import AttentionTrace, ModelTrace, trace_nbytes
from mha_core.training.grammar import build_vocabulary
from mha_core.transformer import Transformer, TransformerConfig
from mha_view import cards
from mha_view.settings import N_LAYERS, Settings

VOCABULARY: Vocabulary = build_vocabulary()
# What a person can type, in the order in which one looks a word up: words first, then signs.
KNOWN_WORDS = tuple(sorted(VOCABULARY.typeable, key=lambda word: (not word[0].isalpha(), word)))


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to run, where its weights come from, and what went wrong when they could not be read."""

    model: Transformer
    card: zoo.Card | None
    problem: str | None

    @property
    def nbytes(self) -> int:
        """Bytes of its parameters, for a cache that must stay bounded."""
        return sum(parameter.nbytes for parameter in self.model.parameters())


@dataclass(frozen=True, eq=False)
class Run:
    """One sentence through one model: everything the pages show."""

    settings: Settings
    tokens: Tokens
    trace: ModelTrace
    checks: tuple[Check, ...]
    card: zoo.Card | None
    problem: str | None
    device: str
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes held by this run, for a cache that must stay bounded."""
        return self.trace.nbytes

    def layer(self, layer: int) -> AttentionTrace:
        """The attention trace of one layer."""
        return self.trace.layers[layer]

    def parameters(self) -> dict[str, int]:
        """Parameters of one attention layer by matrix."""
        return attention_parameters(self.layer(0).cfg)

    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one more token adds, in all layers."""
        return kv_cache_bytes_per_token(self.layer(0).cfg, len(self.trace.layers), self.layer(0).k.element_size())

    def next_words(self, count: int = 3, position: int = -1) -> list[tuple[str, float]]:
        """The words the model expects after ``position``, likeliest first."""
        probabilities = self.trace.next_token_probabilities(position)
        return [(VOCABULARY.words[i], float(probabilities[i])) for i in probabilities.argsort()[::-1][:count]]


def model_config(settings: Settings) -> TransformerConfig:
    """The whole small model around the chosen attention layer."""
    return TransformerConfig(settings.attention(), vocab_size=len(VOCABULARY), n_layers=N_LAYERS)


def estimated_bytes(settings: Settings, n_rows: int) -> int:
    """Bytes that the weights and the trace will take, before anything is allocated."""
    cfg = model_config(settings)
    weights = 4 * sum(model_parameters(cfg).values())
    # The stream around each of the two parts of a layer: what is written, and what stands after.
    stream = 4 * 4 * n_rows * cfg.attention.d_model
    return weights + cfg.n_layers * (trace_nbytes(cfg.attention, n_rows) + stream)


def trained_card(settings: Settings) -> zoo.Card | None:
    """The card of the trained weights for these knobs, or None where there are none or none are wanted."""
    if settings.weights != "trained":
        return None
    return cards.find(settings.d_model, settings.n_heads, settings.n_kv_heads)


def trained_settings(settings: Settings) -> Settings | None:
    """The same settings with the nearest knobs that have trained weights (by ratio, g counting least); None if none."""

    def distance(card: zoo.Card) -> float:
        asked = (settings.d_model, settings.n_heads, settings.n_kv_heads)
        has = cards.sizes_of(card)
        return sum(w * abs(math.log(a / b)) for w, a, b in zip((4, 2, 1), asked, has, strict=True))

    card = min(cards.cards(), key=distance, default=None)
    if card is None:
        return None
    d_model, n_heads, n_kv_heads = cards.sizes_of(card)
    return replace(settings, weights="trained", d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads)


def load_model(settings: Settings) -> LoadedModel:
    """The model for these settings: trained weights where there are some, else random ones from the seed.

    Weights that cannot be read give random ones and the reason in ``problem``.
    """
    card, problem = trained_card(settings), None
    if card is not None:
        try:
            model, card = zoo.load(card.name)
            model.use_mask(settings.mask_rule())
            return LoadedModel(model.to(best_device()).eval(), card, None)
        except zoo.ZooError as error:
            problem = str(error)
    return LoadedModel(Transformer(model_config(settings)).to(best_device()).eval(), None, problem)


def run(settings: Settings, loaded: LoadedModel) -> Run:
    """Trace the sentence through the model and check what came out."""
    tokens = VOCABULARY.tokenize(settings.sentence)
    device = next(loaded.model.parameters()).device
    ids = torch.tensor([tokens.ids], device=device)
    trace = loaded.model.trace(ids)
    return Run(
        settings=settings,
        tokens=tokens,
        trace=trace,
        checks=check_run(loaded.model, trace),
        card=loaded.card,
        problem=loaded.problem,
        device=device_name(device),
        dtype=str(trace.logits.dtype).removeprefix("torch."),
    )


def model_key(settings: Settings) -> tuple[object, ...]:
    """All settings that the model depends on, with device and dtype."""
    key = replace(settings, sentence="", scale="linear")
    return (key, str(best_device()), str(torch.get_default_dtype()))


def run_key(settings: Settings) -> tuple[object, ...]:
    """All settings that a run depends on, with device and dtype."""
    key = replace(settings, scale="linear")
    return (key, str(best_device()), str(torch.get_default_dtype()))
