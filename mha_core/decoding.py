"""Writing on: one token at a time, each step a frozen value; with a running cache, or recomputing everything."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mha_core.config import ConfigError, Problem, whole_number_problem
from mha_core.kv_cache import RunningCache
from mha_core.masks import Full
from mha_core.seeds import generator_for
from mha_core.text import MAX_TOKENS
from mha_core.trace import AttentionTrace, CachedTrace, ModelTrace
from mha_core.transformer import HeadGates, Transformer
from mha_core.work import Counted, Product, Work, work_of

MAX_TEMPERATURE = 100.0


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen from the model's probabilities.

    temperature: logits are divided by it; 0 takes the likeliest token (greedy), and so does nearly 0.
    top_k: only the k likeliest may be drawn. top_p: only the fewest likeliest that together reach p (nucleus sampling,
    Holtzman et al. 2020). None for no limit; with both, top_k goes first.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None

    def problems(self, vocab_size: int) -> list[Problem]:
        """One sentence for each choice that cannot work with a vocabulary of this size."""
        found: list[Problem] = []
        if not _is_number(self.temperature) or not 0 <= self.temperature <= MAX_TEMPERATURE:
            message = f"The temperature must be a number from 0 to {MAX_TEMPERATURE:g}, not {self.temperature!r}."
            found.append(Problem("temperature", message))
        if self.top_k is not None and (bad := whole_number_problem("top_k", "top-k", self.top_k, 1, vocab_size)):
            found.append(bad)
        if self.top_p is not None and (not _is_number(self.top_p) or not 0 < self.top_p <= 1):
            found.append(Problem("top_p", f"top-p must be a number above 0 and at most 1, not {self.top_p!r}."))
        return found

    def chances(self, logits: Float[Tensor, "vocab"]) -> Float[Tensor, "vocab"]:
        """The probabilities that a token is drawn with, in float64: 0 for those that may not be drawn."""
        # The largest logit becomes 0 first: divided by any temperature it stays 0, and nothing overflows.
        above = logits.double() - logits.double().max()
        if self.temperature == 0:
            return torch.zeros_like(above).index_fill_(0, above.argmax(), 1.0)
        chances = (above / self.temperature).softmax(-1)
        ranked, order = chances.sort(descending=True, stable=True)
        if self.top_k is not None:
            ranked[self.top_k :] = 0.0
            ranked /= ranked.sum()
        if self.top_p is not None:
            # A token stays while those before it have not reached p; the first always does.
            ranked[ranked.cumsum(0) - ranked >= self.top_p] = 0.0
        return torch.zeros_like(chances).index_copy_(0, order, ranked / ranked.sum())


@dataclass(frozen=True)
class DecodeSettings:
    """Everything that decides a text besides model and prompt; hashable, so that it can be part of a cache's key.

    seed: of the draws; each position has a stream of its own, so that going back or forcing a token changes no later
    draw. cached: False reads the whole text again for every token. bits: 8 or 4 for a quantised cache.
    n_max: the most tokens that may be read, prompt included. watch: keep every step of every layer, and count the
    work. check: do each step a second time without a cache, and compare.
    """

    sampling: Sampling = Sampling()
    seed: int = 0
    cached: bool = True
    bits: int | None = None
    n_max: int = MAX_TOKENS + 1
    watch: bool = False
    check: bool = False


@dataclass(frozen=True)
class Recomputed:
    """The same step without a cache: its seconds and work, and how far apart the two answers are.

    formula: its products computed from their sizes. counted, with ``watch``: the products as they really ran.
    difference: the largest of all |cached - uncached| probabilities. logit_difference: the same of the logits.
    """

    seconds: float
    formula: Work
    counted: Work | None
    difference: float
    logit_difference: float


@dataclass(frozen=True, eq=False)
class DecodeStep:
    """One pass and the token that was chosen after it; step 0 is the prefill, which reads the whole prompt.

    n_read: tokens read in this pass. n_seen: tokens read so far; the chosen token gets this position.
    forced: the token was given, not chosen. logits: for this position. nbytes_added, nbytes_used: of the caches of all
    layers; nothing is added where a new token takes the place of an old one. seconds: of the pass alone, on this
    machine.
    With ``watch``: layers, every attention step of the new tokens; formula, the products of the pass computed from its
    sizes; counted, the products as they really ran.
    recomputed: with ``check``.
    """

    number: int
    n_read: int
    n_seen: int
    token: int
    forced: bool
    logits: Float[Tensor, "vocab"]
    sampling: Sampling
    nbytes_added: int
    nbytes_used: int
    seconds: float
    layers: tuple[CachedTrace, ...] = ()
    formula: Work | None = None
    counted: Work | None = None
    recomputed: Recomputed | None = None

    @property
    def probabilities(self) -> np.ndarray:
        """What the model expects at this position: one probability per vocabulary entry."""
        return self.logits.double().softmax(-1).numpy()

    @property
    def chances(self) -> np.ndarray:
        """What the token was drawn from: the probabilities after temperature, top-k and top-p."""
        return self.sampling.chances(self.logits).numpy()


class Decoding:
    """A text that is being written: the tokens so far, and the caches that hold what they left behind.

    n_before: so many of the prompt's first tokens are read into the caches beforehand, so that the first step reads
    only the rest. Raises ConfigError for a prompt, settings or a mask that cannot work. To go back a step, begin anew
    with a shorter prompt: the same seed goes on with the same tokens.
    """

    def __init__(
        self,
        model: Transformer,
        prompt: Sequence[int],
        settings: DecodeSettings = DecodeSettings(),
        *,
        n_before: int = 0,
        head_gates: HeadGates | None = None,
    ) -> None:
        problems = decode_problems(model, prompt, settings)
        if not problems and (bad := whole_number_problem("n_before", "n_before", n_before, 0, len(prompt) - 1)):
            problems = [bad]
        if problems:
            raise ConfigError(problems)
        self.tokens = list(prompt)
        self._model, self._settings, self._gates = model, settings, head_gates
        self._device = model.embed.weight.device
        self._n_max, self._n_prompt, self._number = text_limit(model, settings), len(prompt), 0
        self._unread = list(prompt[n_before:])
        self._caches = model.new_caches(1, self._n_max, bits=settings.bits) if settings.cached else []
        if self._caches and n_before > 0:
            model.decode(self._ids(prompt[:n_before]), self._caches, head_gates=head_gates)

    @property
    def full(self) -> bool:
        """Whether the text is as long as the model may read: no step is left."""
        return len(self.tokens) > self._n_max

    @property
    def caches(self) -> tuple[RunningCache, ...]:
        """One cache per layer; they go on changing with every step."""
        return tuple(self._caches)

    def step(self, forced: int | None = None) -> DecodeStep:
        """Read what is new, and choose the next token, or take the ``forced`` one.

        Raises ConfigError when the text is full or the forced token is no row of the vocabulary.
        """
        if problem := self._step_problem(forced):
            raise ConfigError([problem])
        m, n, used = len(self._unread), len(self.tokens), self._nbytes_used()
        watched = self._watched(m, n) if self._settings.watch else {}
        logits, seconds = self._timed_pass()
        now_used = self._nbytes_used()
        step = DecodeStep(
            number=self._number,
            n_read=m,
            n_seen=n,
            token=self._choice(logits) if forced is None else forced,
            forced=forced is not None,
            logits=logits,
            sampling=self._settings.sampling,
            nbytes_added=now_used - used,
            nbytes_used=now_used,
            seconds=seconds,
            recomputed=self._recomputed(logits) if self._settings.check else None,
            **watched,
        )
        self.tokens.append(step.token)
        self._unread, self._number = [step.token], self._number + 1
        return step

    def switch(self, head_gates: HeadGates | None, *, recompute: bool) -> None:
        """Other heads from the next token on.

        recompute: True reads the whole text again with these heads, as if they had never been others. False leaves in
        the cache what earlier tokens computed with the heads of their time: cheaper, and another answer. Without a
        cache everything is recomputed anyway, and False raises ConfigError.
        """
        if not recompute and not self._settings.cached:
            message = "Without a cache the past is computed again at every step; it cannot keep its former heads."
            raise ConfigError([Problem("recompute", message)])
        self._gates = head_gates
        if recompute:
            self._unread = list(self.tokens)
            for cache in self._caches:
                cache.reset()

    def _step_problem(self, forced: int | None) -> Problem | None:
        if self.full:
            return Problem("n_max", f"The text has reached {self._n_max:,} tokens, and the model reads no more.")
        return None if forced is None else _token_problem("forced", forced, self._model.cfg.vocab_size)

    def _ids(self, tokens: Sequence[int]) -> Tensor:
        return torch.tensor([tokens], device=self._device)

    def _timed_pass(self) -> tuple[Float[Tensor, "vocab"], float]:
        """Logits by the fast path, and its seconds."""
        start = time.perf_counter()
        if self._caches:
            logits = self._model.decode(self._ids(self._unread), self._caches, head_gates=self._gates)[0, -1].cpu()
        else:
            logits = _uncached(self._model, self._ids(self.tokens), self._gates)
        return logits, time.perf_counter() - start

    def _watched(self, m: int, n: int) -> dict[str, Any]:
        """The same pass with everything kept, on copies of the caches: the timed pass is left alone."""
        with Counted() as counted:
            if self._caches:
                copies = [cache.copy() for cache in self._caches]
                layers, _ = self._model.trace_decode(self._ids(self._unread), copies, head_gates=self._gates)
            else:
                layers = tuple(newest_rows(layer, m) for layer in self._whole_trace().layers)
        return {"layers": layers, "formula": self._formula(m, n), "counted": counted.work}

    def _whole_trace(self) -> ModelTrace:
        return self._model.trace(self._ids(self.tokens), head_gates=self._gates)

    def _choice(self, logits: Tensor) -> int:
        sampling = self._settings.sampling
        if sampling.temperature == 0:
            return int(logits.argmax())
        stream = generator_for(self._settings.seed, "token", len(self.tokens))
        return int(torch.multinomial(sampling.chances(logits), 1, generator=stream))

    def _nbytes_used(self) -> int:
        return sum(cache.nbytes_used for cache in self._caches)

    def _formula(self, m: int, n: int) -> Work:
        if not self._caches:
            return pass_work(self._model, n, n, cached=False)
        room = self._caches[0].room
        return pass_work(self._model, m, min(n - m, room) + m if m > 1 else min(n, room))

    def _recomputed(self, logits: Tensor) -> Recomputed:
        n, start = len(self.tokens), time.perf_counter()
        again = _uncached(self._model, self._ids(self.tokens), self._gates)
        seconds = time.perf_counter() - start
        counted = None
        if self._settings.watch:
            # The fast pass is one call that cannot be counted; the same pass step by step can.
            with Counted() as counting:
                self._whole_trace()
            counted = counting.work
        chances, chances_again = logits.double().softmax(-1), again.double().softmax(-1)
        difference, of_logits = ((a - b).abs().max() for a, b in ((chances, chances_again), (logits, again)))
        formula = pass_work(self._model, n, n, cached=False)
        return Recomputed(seconds, formula, counted, float(difference), float(of_logits))


def generate(
    model: Transformer,
    prompt: Sequence[int],
    settings: DecodeSettings = DecodeSettings(),
    *,
    n_new: int,
    forced: Mapping[int, int] | None = None,
    head_gates: HeadGates | None = None,
    stop_at: int | None = None,
) -> Iterator[DecodeStep]:
    """At most ``n_new`` new tokens, step by step; whoever has enough stops asking.

    forced: a token for some step numbers. stop_at: a token after which the text is done, such as the full stop's.
    Ends early when the text is full. Raises ConfigError, as ``Decoding`` does, before the first step.
    """
    decoding = Decoding(model, prompt, settings, head_gates=head_gates)
    return _steps(decoding, n_new, {} if forced is None else forced, stop_at)


def _steps(decoding: Decoding, n_new: int, forced: Mapping[int, int], stop_at: int | None) -> Iterator[DecodeStep]:
    for number in range(n_new):
        if decoding.full:
            return
        step = decoding.step(forced.get(number))
        yield step
        if step.token == stop_at:
            return


def text_limit(model: Transformer, settings: DecodeSettings) -> int:
    """The most tokens that may be read: what the settings say, or fewer where the position table ends."""
    rows = model.cfg.n_positions
    return settings.n_max if rows is None else min(settings.n_max, rows)


def decode_problems(model: Transformer, prompt: Sequence[int], settings: DecodeSettings) -> list[Problem]:
    """One sentence for each reason why this text cannot be written on."""
    cfg = model.cfg
    found = settings.sampling.problems(cfg.vocab_size)
    if bad := whole_number_problem("n_max", "the length of the text", settings.n_max, 1, MAX_TOKENS * 1024):
        return [*found, bad]
    limit = text_limit(model, settings)
    if len(prompt) == 0:
        found.append(Problem("prompt", "The prompt is empty; write at least one word."))
    if len(prompt) > limit:
        message = f"The prompt has {len(prompt):,} tokens and at most {limit:,} can be read"
        found.append(Problem("prompt", f"{message}; take out at least {len(prompt) - limit:,}."))
    wrong = (_token_problem("prompt", token, cfg.vocab_size) for token in prompt)
    found += [problem for problem in wrong if problem is not None][:1]
    if settings.cached and isinstance(cfg.attention.mask, Full) and cfg.n_layers > 1:
        why = "With the full mask a new token changes what all earlier ones compute, so nothing can be kept"
        found.append(Problem("mask", f"{why}; choose the causal mask, or decode without a cache."))
    return found


def pass_work(model: Transformer, m: int, n: int, *, cached: bool = True) -> Work:
    """By formula, the products of one pass of one text: m tokens are read, and each looks at n keys.

    With a cache m is 1 and n grows, so a step costs about the same each time; without, m is n.
    """
    d_model, d_mlp = model.cfg.attention.d_model, model.cfg.d_mlp
    products = [Product(1, m, d_model, model.cfg.vocab_size)]
    for attention in model.attention_layers():
        products += [
            *attention.products(m, n, cached=cached),
            Product(1, m, d_model, d_mlp),
            Product(1, m, d_mlp, d_model),
        ]
    return work_of(products, model.embed.weight.dtype.itemsize)


def newest_rows(trace: AttentionTrace, m: int) -> CachedTrace:
    """The last m tokens' rows of a whole pass, in the form in which a step with a cache is told."""
    rows = ("q", "k", "v", "q_rot", "k_rot", "scores", "mask", "pattern", "z", "concat", "out", "x")
    steps = {name: getattr(trace, name) for name in rows}
    n = trace.x.shape[1]
    cut = {name: step[..., n - m :, :] for name, step in steps.items()}
    return CachedTrace(trace.cfg, torch.arange(n), **cut)


@dataclass(frozen=True)
class CacheCost:
    """What a smaller cache saves and costs, against a plain one: measured on texts, not estimated.

    nbytes, nbytes_plain: of all layers, for one text. difference: largest change of a logit. loss, loss_plain: how
    surprised the model is by each next token, in nats, on average; None for texts of one token.
    """

    nbytes: int
    nbytes_plain: int
    difference: float
    loss: float | None
    loss_plain: float | None


def cache_cost(
    model: Transformer,
    other: Transformer,
    texts: Int[Tensor, "b n"],
    *,
    bits: int | None = None,
    padding: int | None = None,
) -> CacheCost:
    """Read texts through a plain cache of ``model`` and through that of ``other`` in ``bits``; compare.

    other: the model itself, or ``latent.truncated(model, rank)``. padding: the token that fills up shorter texts at
    their end; it is left out of the loss and of the difference. Raises ConfigError as ``Decoding`` does.
    """
    nbytes, logits = _read_through(other, texts, bits)
    nbytes_plain, logits_plain = _read_through(model, texts, None)
    real = torch.ones_like(texts, dtype=torch.bool) if padding is None else texts != padding
    difference = float((logits - logits_plain)[real].abs().max())
    losses = (_loss(found, texts, real) for found in (logits, logits_plain))
    return CacheCost(nbytes, nbytes_plain, difference, *losses)


def _read_through(model: Transformer, texts: Int[Tensor, "b n"], bits: int | None) -> tuple[int, Tensor]:
    b, n = texts.shape
    settings = DecodeSettings(n_max=max(1, n), bits=bits)
    for text in texts.tolist():
        if problems := decode_problems(model, text, settings):
            raise ConfigError(problems)
    caches = model.new_caches(b, n, bits=bits)
    logits = model.decode(texts.to(model.embed.weight.device), caches)
    return sum(cache.nbytes for cache in caches) // b, logits.cpu()


def _loss(logits: Float[Tensor, "b n vocab"], texts: Int[Tensor, "b n"], real: Bool[Tensor, "b n"]) -> float | None:
    said = real[:, 1:]
    if not said.any():
        return None
    return float(torch.nn.functional.cross_entropy(logits[:, :-1][said].double(), texts[:, 1:][said]))


@torch.no_grad()
def _uncached(model: Transformer, ids: Tensor, head_gates: HeadGates | None) -> Float[Tensor, "vocab"]:
    return model(ids, head_gates=head_gates)[0, -1].cpu()


def _token_problem(field: str, token: object, vocab_size: int) -> Problem | None:
    return whole_number_problem(field, "token", token, 0, vocab_size - 1)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
