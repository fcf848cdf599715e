"""The three knobs and their friends: what can be chosen, and what a wrong choice is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mha_core.masks import FULL, Mask, SlidingWindow

MAX_D_MODEL = 65_536
MAX_HEADS = 1_024
MAX_HEAD_DIM = 8_192
MAX_SEED = 2**32 - 1
MAX_WINDOW = 1_000_000

KNOB_D_MODEL = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
KNOB_MAX_HEADS = 64


@dataclass(frozen=True)
class Problem:
    """One reason why a choice cannot work: the field, and a sentence a visitor can act on."""

    field: str
    message: str


class ConfigError(ValueError):
    """Raised for a choice that cannot work; ``problems`` holds one sentence for each reason."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(problem.message for problem in self.problems))


@dataclass(frozen=True)
class AttentionConfig:
    """The shape of one attention layer.

    d_model: width of the residual stream (hidden_size elsewhere).
    n_heads: number of query heads h.
    n_kv_heads: number of key/value heads g; query heads share them evenly.
    head_dim: width d_k of one head; d_model // n_heads when left out, as in Vaswani et al. 2017.
    bias: whether the four projections add a bias.
    rotary_base: base of the rotary positions (Su et al. 2021), None for none.
    mask: who may look at whom.
    seed: where the random weights start.

    Raises ConfigError with one Problem for each field that cannot work.
    """

    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int = None  # pyright: ignore[reportAssignmentType] -- __post_init__ fills it in
    bias: bool = False
    rotary_base: float | None = None
    mask: Mask = FULL
    seed: int = 0

    def __post_init__(self) -> None:
        problems = _size_problems(self) or _fit_problems(self)
        if problems:
            raise ConfigError(problems)
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", self.d_model // self.n_heads)
        if problems := _rotary_problems(self):
            raise ConfigError(problems)

    @property
    def heads_per_kv(self) -> int:
        """How many query heads read the same keys and values (h/g)."""
        return self.n_heads // self.n_kv_heads

    @property
    def scale(self) -> float:
        """What scores are multiplied with: 1 / sqrt(d_k)."""
        return self.head_dim**-0.5

    def kv_head_of(self, head: int) -> int:
        """The KV head that query head ``head`` reads: consecutive heads share (repeat_interleave)."""
        return head // self.heads_per_kv


@dataclass(frozen=True)
class Choices:
    """The values the knobs offer, given what is chosen already."""

    d_model: tuple[int, ...]
    n_heads: tuple[int, ...]
    n_kv_heads: tuple[int, ...]


def valid_choices(d_model: int, n_heads: int, *, rotary: bool) -> Choices:
    """The widths, heads and KV heads a person can pick from here without meeting an error."""
    heads = tuple(h for h in divisors(d_model) if h <= KNOB_MAX_HEADS and not (rotary and d_model // h % 2))
    return Choices(KNOB_D_MODEL, heads, divisors(n_heads))


def divisors(number: int) -> tuple[int, ...]:
    """All whole numbers that divide ``number``, smallest first."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))


def nearest(value: float, options: Iterable[int], count: int = 1) -> tuple[int, ...]:
    """The ``count`` options closest to ``value`` by ratio, smallest first; the smaller wins a tie."""

    def distance(option: int) -> float:
        return max(option, value) / min(option, value) if value > 0 else option

    return tuple(sorted(sorted(options, key=lambda option: (distance(option), option))[:count]))


def or_list(values: Iterable[object]) -> str:
    """Values as a person would say them: "1, 2 or 4"."""
    *head, last = [f"{value:,}" if isinstance(value, int) else str(value) for value in values]
    return f"{', '.join(head)} or {last}" if head else last


def whole_number_problem(field: str, name: str, value: object, low: int, high: int) -> Problem | None:
    """The Problem with ``value`` as a whole number between ``low`` and ``high``, or None."""
    if isinstance(value, bool) or not isinstance(value, int):
        return Problem(field, f"{name} must be a whole number from {low:,} to {high:,}, not {_shown(value)}.")
    if not low <= value <= high:
        closest = low if value < low else high
        return Problem(
            field,
            f"{name} = {_shown(value)} is out of range; {name} can be {low:,} to {high:,}, nearest is {closest:,}.",
        )
    return None


def heads_problem(d_model: int, n_heads: int, options: Iterable[int]) -> Problem:
    """What is wrong with a number of heads that does not divide the width, and which of ``options`` would do."""
    message = f"h = {n_heads:,} does not divide d_model = {d_model:,}; h can be {or_list(options)}."
    return Problem("n_heads", message)


def _shown(value: object) -> str:
    """A wrong value as its sentence shows it: never long, and Python refuses to spell out numbers of 4,301 digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) < 10**18 else f"a number of {value.bit_length() * 30103 // 100000 + 1} digits"
    return repr(value) if len(repr(value)) <= 40 else repr(value)[:37] + "..."


def _size_problems(cfg: AttentionConfig) -> list[Problem]:
    found = [
        whole_number_problem("d_model", "d_model", cfg.d_model, 1, MAX_D_MODEL),
        whole_number_problem("n_heads", "h", cfg.n_heads, 1, MAX_HEADS),
        whole_number_problem("n_kv_heads", "g", cfg.n_kv_heads, 1, MAX_HEADS),
        whole_number_problem("seed", "seed", cfg.seed, 0, MAX_SEED),
        _mask_problem(cfg.mask),
        _rotary_base_problem(cfg.rotary_base),
    ]
    if cfg.head_dim is not None:
        found.append(whole_number_problem("head_dim", "d_k", cfg.head_dim, 1, MAX_HEAD_DIM))
    if not isinstance(cfg.bias, bool):
        found.append(Problem("bias", f"bias must be True or False, not {_shown(cfg.bias)}."))
    return [problem for problem in found if problem is not None]


def _mask_problem(mask: object) -> Problem | None:
    if not isinstance(mask, Mask):
        return Problem("mask", f"mask must be Full(), Causal() or SlidingWindow(width), not {_shown(mask)}.")
    if isinstance(mask, SlidingWindow):
        return whole_number_problem("mask", "window", mask.width, 1, MAX_WINDOW)
    return None


def _rotary_base_problem(base: object) -> Problem | None:
    if base is None:
        return None
    if isinstance(base, bool) or not isinstance(base, (int, float)) or not 1 < base < 1e12:
        return Problem("rotary_base", f"rotary_base must be a number above 1, such as 10000, not {_shown(base)}.")
    return None


def _fit_problems(cfg: AttentionConfig) -> list[Problem]:
    found: list[Problem] = []
    if cfg.head_dim is None and cfg.d_model % cfg.n_heads:
        heads = [h for h in divisors(cfg.d_model) if h <= MAX_HEADS]
        even = [h for h in heads if cfg.d_model // h % 2 == 0]
        options = nearest(cfg.n_heads, even if cfg.rotary_base and even else heads, 8)
        found.append(heads_problem(cfg.d_model, cfg.n_heads, options))
    if cfg.n_heads % cfg.n_kv_heads:
        options = nearest(cfg.n_kv_heads, divisors(cfg.n_heads), 8)
        message = f"g = {cfg.n_kv_heads:,} does not divide h = {cfg.n_heads:,}; g can be {or_list(options)}."
        found.append(Problem("n_kv_heads", message))
    return found


def _rotary_problems(cfg: AttentionConfig) -> list[Problem]:
    if cfg.rotary_base is None or cfg.head_dim % 2 == 0:
        return []
    why = "rotary positions turn pairs of numbers, so a head needs an even width"
    heads = [h for h in divisors(cfg.d_model) if h <= MAX_HEADS and cfg.d_model // h % 2 == 0]
    if cfg.head_dim * cfg.n_heads == cfg.d_model and heads:
        fix = f"with d_model = {cfg.d_model:,}, h can be {or_list(nearest(cfg.n_heads, heads, 8))}"
        return [Problem("n_heads", f"h = {cfg.n_heads:,} gives d_k = {cfg.head_dim:,}, which is odd: {why}; {fix}.")]
    close = [width for width in (cfg.head_dim - 1, cfg.head_dim + 1) if width > 0]
    return [Problem("head_dim", f"d_k = {cfg.head_dim:,} is odd: {why}; nearest are {or_list(close)}.")]
