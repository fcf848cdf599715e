"""For every name a head earned: a text that shows it best, and one in which the head fails at it.

A name rests on hundreds of sentences. One sentence that shows it well is for looking at; one that shows it failing
keeps the name honest. Both are found by trying the head on many texts, among them sentences that are harder than
anything in the grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from torch import Tensor

from mha_core.analysis.roles import LEAST_MASS, LEAST_RARE_RATIO, Label, Showing, Shown
from mha_core.text import START, Vocabulary
from mha_core.training import probes
from mha_core.training import words as w
from mha_core.training.evaluate import read
from mha_core.training.grammar import plural, sentences
from mha_core.training.recipe import token_rows
from mha_core.transformer import Transformer

POOL = 60
LIST_LENGTH = 12

# Sentences of two clauses, with a third noun, turned around, or with a pronoun that fits against the verb:
# (text, asked, right, wrong). The grammar has none of them.
HARD_COREFERENCE = (
    ("the cat looked for the mat near the box because it was", "it", "mat", "box"),
    ("near the box , the cat looked for the mat because it was", "it", "mat", "box"),
    ("the mat that the cat sees lay on the box because it was", "it", "mat", "box"),
    ("the cat that the dog sees sat on the mat because it was", "it", "cat", "dog"),
    ("because the cat sat on the mat it was", "it", "cat", "mat"),
    ("because the cat looked for the mat it was", "it", "mat", "cat"),
    ("the cat sat on the mat . the dog looked for the box because it was", "it", "box", "dog"),
    ("the cats sat on the mat because it was", "it", "mat", "cats"),
    ("the girls looked for the mats because they were", "they", "mats", "girls"),
    ("the girl looked for the cat because she was", "she", "girl", "cat"),
    ("the cat looked for the mats because it was", "it", "cat", "mats"),
)
HARD_AGREEMENT = (
    ("the girl that the boys near the men see often", "girl", "boys"),
    ("near the boys that the men see , the girl often", "girl", "men"),
    ("the girl near the box near the boys often", "girl", "boys"),
    ("the boys near the cat that the girl sees often", "boys", "girl"),
    ("near the girl that sees the boys , the men often", "men", "girl"),
)

HARD_VERBS = (
    ("the girl that the boys near the men see often", "sleeps", "girl", "boys"),
    ("near the boys that the men see , the girl often", "sleeps", "girl", "men"),
    ("the girl near the box near the boys often", "sleeps", "girl", "boys"),
    ("the boys near the cat that the girl sees often", "sleep", "boys", "girl"),
)


@dataclass(frozen=True)
class Asked:
    """A text with one question: how much does ``row`` look at ``right``?

    To be right it must be more than on ``wrong``, or than twice what it is in ``twin``, the same text with a common
    word in that place; without either, more than LEAST_MASS.
    """

    words: tuple[str, ...]
    row: int
    right: int
    wrong: int | None = None
    twin: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Answer:
    """How one head answered: its weight on the right token, what would be right, and how far it is from failing."""

    asked: Asked
    pattern: Tensor
    weight: float
    margin: float


def showcase(model: Transformer, vocabulary: Vocabulary, labels: Sequence[Label]) -> tuple[Showing, ...]:
    """The best and the worst text for every label; the texts are the same for all models."""
    pools = {name: pool() for name, pool in POOLS.items() if name in {label.role.name for label in labels}}
    found = []
    for name, pool in pools.items():
        patterns = _patterns(model, vocabulary, [asked.words for asked in pool])
        twins = _patterns(model, vocabulary, [asked.twin or asked.words for asked in pool])
        found += [_showing(label, pool, patterns, twins) for label in labels if label.role.name == name]
    return tuple(sorted(found, key=lambda showing: (showing.layer, showing.head, showing.role)))


def _patterns(model: Transformer, vocabulary: Vocabulary, texts: Sequence[Sequence[str]]) -> Tensor:
    """(s, layers, h, n, n), one per text."""
    return read(model, token_rows(texts, vocabulary)).patterns


def _showing(label: Label, pool: Sequence[Asked], patterns: Tensor, twins: Tensor) -> Showing:
    layer, head = label.head.layer, label.head.head
    gazes = zip(pool, patterns[:, layer, head], twins[:, layer, head], strict=True)
    answers = [_answer(asked, pattern, twin) for asked, pattern, twin in gazes]
    best = max(answers, key=lambda a: a.margin)
    return Showing(layer, head, label.role.name, _shown(best), _counter(answers), len(pool))


def _counter(answers: Sequence[Answer]) -> Shown | None:
    """The clearest failure; for a head that never prefers the wrong noun, where it looks least at the right one.

    None for a head that looks most at the right token in every text.
    """
    worst = min(answers, key=lambda a: a.margin)
    if worst.margin < 0:
        return _shown(worst)
    elsewhere = [shown for answer in answers if (shown := _shown(answer)).instead != shown.key]
    return min(elsewhere, key=lambda shown: shown.weight, default=None)


def _answer(asked: Asked, pattern: Tensor, twin: Tensor) -> Answer:
    weight = float(pattern[asked.row, asked.right])
    needed = LEAST_MASS
    if asked.wrong is not None:
        needed = float(pattern[asked.row, asked.wrong])
    elif asked.twin is not None:
        needed = LEAST_RARE_RATIO * float(twin[asked.row, asked.right])
    return Answer(asked, pattern, weight, weight - needed)


def _shown(answer: Answer) -> Shown:
    asked, gaze = answer.asked, answer.pattern[answer.asked.row]
    instead = int(gaze.argmax())
    return Shown(" ".join(asked.words), asked.row, asked.right, answer.weight, instead, float(gaze[instead]))


def _noun_pool(balanced: Callable[..., list[probes.Probe]], hard: Sequence[Asked]) -> list[Asked]:
    easy = [Asked(p.words, p.asked, p.right, p.wrong) for p in balanced(POOL, "showcase")]
    return [*easy, *hard]


def _asked(text: str, asked: str, right: str, wrong: str) -> Asked:
    words = tuple(text.split())
    row, first, second = (words.index(word) + 1 for word in (asked, right, wrong))
    return Asked(words, row, first, second)


def _chains() -> list[Asked]:
    """Subjects with two or three nouns behind them, as "the girl near the boys that the men see often"."""
    rng, found = Random("showcase chains"), []
    while len(found) < POOL:
        nouns = [(noun, plural(rng)) for noun in rng.sample(w.NOUNS, rng.choice((3, 4)))]
        (subject, many), *others = nouns
        words = ["the", subject.form(many)]
        for noun, several in others:
            place = rng.random() < 0.5
            words += (
                [rng.choice(w.PLACES), "the", noun.form(several)] if place else _seen_by(noun.form(several), several)
            )
        # The noun that could mislead is the last one of the other number: it would call for another form of the verb.
        wrong = [noun.form(several) for noun, several in others if several != many]
        if wrong:
            text = (*words, rng.choice(w.ADVERBS))
            found.append(Asked(text, len(text), 2, text.index(wrong[-1]) + 1))
    return found


def _seen_by(noun: str, several: bool) -> list[str]:
    return ["that", "the", noun, w.SEE[several]]


def _texts() -> list[tuple[str, ...]]:
    """Random words, lists said twice, and sentences of the grammar."""
    salad = probes.word_salad(POOL, "showcase", LIST_LENGTH)
    repeated = probes.repeated_lists(POOL, "showcase", LIST_LENGTH // 2)
    return [tuple(words) for words in (*salad, *repeated, *sentences(POOL, "showcase"))]


def _place_pool(place: Callable[[Sequence[str], int], int | None]) -> list[Asked]:
    """Of every text the last row that has the place: enough to see a head there or not."""
    found = []
    for words in _texts():
        rows = (START, *words)
        places = [(row, key) for row in range(1, len(rows)) if (key := place(rows, row)) is not None]
        found += [Asked(words, *places[-1])] if places else []
    return found


def _back(shift: int) -> Callable[[Sequence[str], int], int | None]:
    return lambda _, row: row - shift if row > shift else None


def _last_time(rows: Sequence[str], row: int) -> int | None:
    """The row where the same word stood before."""
    return next((earlier for earlier in range(row - 1, 0, -1) if rows[earlier] == rows[row]), None)


def _after_last_time(rows: Sequence[str], row: int) -> int | None:
    earlier = _last_time(rows, row)
    return None if earlier is None or earlier + 1 >= row else earlier + 1


POOLS: dict[str, Callable[[], list[Asked]]] = {
    "coreference": lambda: _noun_pool(probes.coreference_probes, [_asked(*hard) for hard in HARD_COREFERENCE]),
    "agreement": lambda: _noun_pool(
        probes.agreement_probes, [*(_asked(text, "often", *nouns) for text, *nouns in HARD_AGREEMENT), *_chains()]
    ),
    "agreement at the verb": lambda: _noun_pool(
        probes.verb_probes, [_asked(f"{text} {verb}", verb, *nouns) for text, verb, *nouns in HARD_VERBS]
    ),
    "previous token": lambda: _place_pool(_back(1)),
    "two back": lambda: _place_pool(_back(2)),
    "three back": lambda: _place_pool(_back(3)),
    "itself": lambda: _place_pool(lambda _, row: row),
    "same token": lambda: _place_pool(_last_time),
    "first-token sink": lambda: _place_pool(lambda *_: 0),
    "rare word": lambda: [
        Asked(tuple(pair.rare), len(pair.rare), pair.row, twin=tuple(pair.common))
        for pair in probes.rare_pairs(POOL, "showcase")
    ],
    "induction": lambda: _place_pool(_after_last_time),
}
