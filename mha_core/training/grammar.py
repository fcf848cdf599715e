"""A small English: sentences in which one word depends on another, so that heads have something to find.

Four kinds, in the shares of ``SHARES``. *Coreference*: the verb decides which noun the pronoun means, and what comes
after the pronoun fits only that noun. *Agreement*: a verb agrees with its subject, over a noun that gets in between or
comes first. *Simple*: short sentences. *Lists*: random words said twice, which can only be predicted by copying.
"""

from __future__ import annotations

from random import Random

from mha_core.text import SPECIAL, Vocabulary
from mha_core.training import words as w
from mha_core.training.words import Noun

SHARES = {"coreference": 0.45, "agreement": 0.35, "simple": 0.07, "list": 0.13}
LIST_LENGTHS = range(4, 9)

YESTERDAY = 0.3
ADJECTIVE = 0.3
ADVERB = 0.5
STATE = 0.5


def build_vocabulary() -> Vocabulary:
    """Every word of the grammar, each once, behind the special entries."""
    nouns = [form for noun in w.NOUNS for form in (noun.singular, noun.plural)]
    verbs = [word for phrase in (*w.SUBJECT_VERBS, *w.OBJECT_VERBS, *w.SIMPLE_ENDINGS) for word in phrase]
    present = [form for pair in (*w.SELF_VERBS, *w.PLAIN_VERBS, w.BE, w.WERE) for form in pair]
    told = [word for table in (w.STATES, w.ACTS) for row in table.values() for word in row]
    reflexives = [word for pair in w.REFLEXIVES.items() for word in pair]
    rest = (*w.PLACES, *w.ADVERBS, *w.ADJECTIVES, *w.SOUNDS.values())
    # A dict keeps the first place of a word that stands in two lists, and the order.
    return Vocabulary(
        (*SPECIAL, *dict.fromkeys((*w.LITTLE_WORDS, *nouns, *verbs, *present, *reflexives, *told, *rest)))
    )


def sentences(count: int, seed: int | str) -> list[list[str]]:
    """``count`` random sentences as lists of words; the same seed gives the same sentences."""
    rng = Random(seed)
    listed = build_vocabulary().typeable
    kinds = rng.choices(list(SHARES), list(SHARES.values()), k=count)
    return [_sentence(rng, kind, listed) for kind in kinds]


def _sentence(rng: Random, kind: str, listed: tuple[str, ...]) -> list[str]:
    if kind == "list":
        return word_list(rng, listed) * 2
    if kind == "simple":
        return _simple(rng)
    first, second = two_nouns(rng)
    numbers = (plural(rng), plural(rng))
    return (_coreference if kind == "coreference" else _agreement)(rng, (first, second), numbers)


def word_list(rng: Random, listed: tuple[str, ...], length: int | None = None) -> list[str]:
    """Different words in random order, 4 to 8 of them when ``length`` is left out."""
    return rng.sample(listed, rng.choice(LIST_LENGTHS) if length is None else length)


def two_nouns(rng: Random, nouns: tuple[Noun, ...] = w.NOUNS) -> tuple[Noun, Noun]:
    """Two different nouns; rare ones come up one twelfth as often."""
    weights = [w.RARE_WEIGHT if noun.rare else 1.0 for noun in nouns]
    first, second = rng.choices(nouns, weights, k=2)
    while second == first:
        second = rng.choices(nouns, weights)[0]
    return first, second


def plural(rng: Random) -> bool:
    """One or many, evenly."""
    return rng.random() < 0.5


def noun_phrase(rng: Random, word: str) -> list[str]:
    """ "the mat", or now and then "the red mat"."""
    return ["the", *maybe(rng, ADJECTIVE, w.ADJECTIVES), word]


def two_noun_clause(rng: Random, first: str, second: str, verb: tuple[str, str]) -> list[str]:
    """ "the cat sat on the mat because": everything before the pronoun."""
    start = maybe(rng, YESTERDAY, ("yesterday",))
    return [*start, *noun_phrase(rng, first), *verb, *noun_phrase(rng, second), rng.choice(w.LINKS)]


def _coreference(rng: Random, nouns: tuple[Noun, Noun], plurals: tuple[bool, bool]) -> list[str]:
    meant = rng.randrange(2)
    verb = rng.choice((w.SUBJECT_VERBS, w.OBJECT_VERBS)[meant])
    forms = [noun.form(many) for noun, many in zip(nouns, plurals, strict=True)]
    noun, many = nouns[meant], plurals[meant]
    told = [w.WERE[many], rng.choice(w.states(noun))] if rng.random() < STATE else [rng.choice(w.acts(noun))]
    return [*two_noun_clause(rng, forms[0], forms[1], verb), noun.pronoun(many), *told, "."]


def subject_and_other(rng: Random, subject: str, other: str, other_plural: bool, *, subject_first: bool) -> list[str]:
    """ "the girl near the boys" or "the girl that the boys see"; the other way round "near the boys , the girl"."""
    if not subject_first:
        return [rng.choice(w.PLACES), "the", other, ",", "the", subject]
    if rng.random() < 0.5:
        return ["the", subject, rng.choice(w.PLACES), "the", other]
    return ["the", subject, "that", "the", other, w.SEE[other_plural]]


def _agreement(rng: Random, nouns: tuple[Noun, Noun], plurals: tuple[bool, bool]) -> list[str]:
    (noun, other), (many, other_many) = nouns, plurals
    forms = noun.form(many), other.form(other_many)
    start = subject_and_other(rng, *forms, other_many, subject_first=rng.random() < 0.5)
    ending = rng.randrange(3)
    if ending == 0:
        told = [rng.choice(w.PLAIN_VERBS)[many]]
    elif ending == 1:
        told = [rng.choice(w.SELF_VERBS)[many], w.REFLEXIVES[noun.pronoun(many)]]
    else:
        told = [w.BE[many], rng.choice(w.states(noun))]
    return [*start, *maybe(rng, ADVERB, w.ADVERBS), *told, "."]


def _simple(rng: Random) -> list[str]:
    noun, many = two_nouns(rng)[0], plural(rng)
    told = rng.choice((*w.SIMPLE_ENDINGS, w.acts(noun)[:1], (w.WERE[many], rng.choice(w.states(noun)))))
    return [*noun_phrase(rng, noun.form(many)), *told, "."]


def maybe(rng: Random, chance: float, options: tuple[str, ...]) -> list[str]:
    """One of the options, or now and then nothing."""
    return [rng.choice(options)] if rng.random() < chance else []
