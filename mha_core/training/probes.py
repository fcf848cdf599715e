"""Sentences with one known answer, made so that no head can score by position alone.

Every set is balanced: the right word comes first in half of its sentences and second in the other half, and each pair
of nouns is used in both roles. A head that always looks at the first noun, or the last, scores exactly one half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from mha_core.training import words as w
from mha_core.training.grammar import (
    ADVERB,
    build_vocabulary,
    maybe,
    plural,
    subject_and_other,
    two_noun_clause,
    two_nouns,
    word_list,
)
from mha_core.training.words import Noun

PROBE_SENTENCES = 600
SALAD_LENGTH = 24
REPEATED_LENGTH = 8
# Share of the words of an echoing list that were said before.
ECHO = 0.3
VERBS = (*w.PLAIN_VERBS, *w.SELF_VERBS, w.BE)

Made = TypeVar("Made")


@dataclass(frozen=True)
class Probe:
    """The beginning of a sentence, where to look, and what should come next.

    asked: the row whose gaze is read. right, wrong: the rows it should and should not look at. Row 0 is the start
    token, so word i stands in row i + 1. fitting, unfitting: next words that go with the right and the wrong one.
    """

    words: tuple[str, ...]
    asked: int
    right: int
    wrong: int
    fitting: tuple[str, ...]
    unfitting: tuple[str, ...]

    @property
    def right_first(self) -> bool:
        """Whether the right word comes before the wrong one."""
        return self.right < self.wrong


@dataclass(frozen=True)
class RarePair:
    """The same words twice, but for one place: a rare noun, or a common one of its class and number.

    row: that place; row 0 is the start token.
    """

    rare: tuple[str, ...]
    common: tuple[str, ...]
    row: int


@dataclass(frozen=True)
class Roles:
    """Two nouns of a sentence: the one that decides the answer, and the one that could mislead."""

    meant: Noun
    other: Noun
    meant_plural: bool
    other_plural: bool
    meant_first: bool = True

    @property
    def forms(self) -> tuple[str, str]:
        """The two words as they stand in the sentence, the meant one first."""
        return self.meant.form(self.meant_plural), self.other.form(self.other_plural)

    @property
    def pronouns(self) -> tuple[str, str]:
        """The two pronouns, the meant one first."""
        return self.meant.pronoun(self.meant_plural), self.other.pronoun(self.other_plural)

    def swapped(self) -> Roles:
        """The same two nouns with their roles exchanged."""
        return Roles(self.other, self.meant, self.other_plural, self.meant_plural, self.meant_first)


def coreference_probes(count: int = PROBE_SENTENCES, seed: int | str = "coreference") -> list[Probe]:
    """ "the cat sat on the mat because it was": both nouns could be "it", the verb decides; asked at "it".

    Raises ValueError for a count that is no multiple of 4.
    """

    def suits(roles: Roles) -> bool:
        return roles.pronouns == ("it", "it") and roles.meant.kind != roles.other.kind

    def probe(rng: Random, roles: Roles) -> Probe:
        text = _up_to_state(rng, roles)
        return Probe(text, len(text) - 1, *_rows(text, roles), w.states(roles.meant), w.states(roles.other))

    return list(_balanced(count, seed, suits, probe))


def mismatch_probes(count: int = PROBE_SENTENCES, seed: int | str = "mismatch") -> list[Probe]:
    """ "the cat sat on the girls because": the nouns take different pronouns, the verb decides which comes next.

    Raises ValueError for a count that is no multiple of 4.
    """

    def probe(rng: Random, roles: Roles) -> Probe:
        text = _clause(rng, roles)
        fitting, unfitting = roles.pronouns
        return Probe(text, len(text), *_rows(text, roles), (fitting,), (unfitting,))

    return list(_balanced(count, seed, _pronouns_differ, probe))


def agreement_probes(count: int = PROBE_SENTENCES, seed: int | str = "agreement") -> list[Probe]:
    """ "near the boys , the girl often": a verb comes next, one noun is singular and one plural; asked at the adverb.

    Raises ValueError for a count that is no multiple of 4.
    """
    forms = {many: tuple(pair[many] for pair in VERBS) for many in (False, True)}

    def probe(rng: Random, roles: Roles) -> Probe:
        text = (*_subject_and_other(rng, roles), rng.choice(w.ADVERBS))
        return Probe(text, len(text), *_rows(text, roles), forms[roles.meant_plural], forms[roles.other_plural])

    return list(_balanced(count, seed, _numbers_differ, probe))


def verb_probes(count: int = PROBE_SENTENCES, seed: int | str = "verb") -> list[Probe]:
    """ "near the boys , the girl often sees": an agreement probe that goes on to its verb, and is asked there.

    The adverb is left out now and then, as in training. What comes next is not asked.
    Raises ValueError for a count that is no multiple of 4.
    """

    def probe(rng: Random, roles: Roles) -> Probe:
        text = _up_to_verb(rng, roles)
        return Probe(text, len(text), *_rows(text, roles), (), ())

    return list(_balanced(count, seed, _numbers_differ, probe))


def reflexive_probes(count: int = PROBE_SENTENCES, seed: int | str = "reflexive") -> list[Probe]:
    """ "near the boys , the girl sees": the subject decides between itself, herself, himself and themselves.

    Raises ValueError for a count that is no multiple of 4.
    """

    def probe(rng: Random, roles: Roles) -> Probe:
        text = (*_subject_and_other(rng, roles), rng.choice(w.SELF_VERBS)[roles.meant_plural])
        fitting = w.REFLEXIVES[roles.pronouns[0]]
        unfitting = tuple(word for word in w.REFLEXIVES.values() if word != fitting)
        return Probe(text, len(text), *_rows(text, roles), (fitting,), unfitting)

    return list(_balanced(count, seed, _pronouns_differ, probe))


def rare_pairs(count: int = PROBE_SENTENCES, seed: int | str = "rare") -> list[RarePair]:
    """Beginnings of sentences with one rare noun, first or second, meant or not, each as often as the other.

    Raises ValueError for a count that is no multiple of 4.
    """

    def suits(roles: Roles) -> bool:
        return roles.meant.rare != roles.other.rare

    def pair(rng: Random, roles: Roles) -> RarePair:
        noun, many = (roles.meant, roles.meant_plural) if roles.meant.rare else (roles.other, roles.other_plural)
        used = (roles.meant, roles.other)
        common = rng.choice([n for n in w.NOUNS if n.kind == noun.kind and n not in used])
        text = rng.choice((_up_to_state, _up_to_verb))(rng, roles)
        at = text.index(noun.form(many))
        return RarePair(text, (*text[:at], common.form(many), *text[at + 1 :]), at + 1)

    return list(_balanced(count, seed, suits, pair))


def repeated_lists(
    count: int = PROBE_SENTENCES, seed: int | str = "repeated", length: int | None = REPEATED_LENGTH
) -> list[list[str]]:
    """Random different words said twice; lists of 4 to 8 words, as in training, when ``length`` is None."""
    rng, listed = Random(seed), build_vocabulary().typeable
    return [word_list(rng, listed, length) * 2 for _ in range(count)]


def word_salad(count: int = PROBE_SENTENCES, seed: int | str = "salad", length: int = SALAD_LENGTH) -> list[list[str]]:
    """Words drawn at random, in which only position means anything."""
    rng, listed = Random(seed), build_vocabulary().typeable
    return [rng.choices(listed, k=length) for _ in range(count)]


def echoing_lists(
    count: int = PROBE_SENTENCES, seed: int | str = "echoes", length: int = SALAD_LENGTH
) -> list[list[str]]:
    """Random words, some of which were said before in the same list, any number of words ago."""
    rng, listed = Random(seed), build_vocabulary().typeable

    def text() -> list[str]:
        fresh, said = iter(word_list(rng, listed, length)), []
        for _ in range(length):
            said.append(rng.choice(said) if said and rng.random() < ECHO else next(fresh))
        return said

    return [text() for _ in range(count)]


def _balanced(
    count: int, seed: int | str, suits: Callable[[Roles], bool], probe: Callable[[Random, Roles], Made]
) -> Iterator[Made]:
    """Fours of probes on one pair of nouns: each noun is meant once in first and once in second place."""
    if count % 4:
        raise ValueError(f"a balanced set comes in fours: {count} is no multiple of 4")
    rng = Random(seed)
    for _ in range(count // 4):
        drawn = _draw(rng, suits)
        for roles in (drawn, drawn.swapped()):
            yield probe(rng, roles)
            yield probe(rng, replace(roles, meant_first=False))


def _draw(rng: Random, suits: Callable[[Roles], bool]) -> Roles:
    """Two nouns and their numbers, drawn as in training, until they suit."""
    while not suits(roles := Roles(*two_nouns(rng), plural(rng), plural(rng))):
        pass
    return roles


def _clause(rng: Random, roles: Roles) -> tuple[str, ...]:
    meant, other = roles.forms
    if roles.meant_first:
        return tuple(two_noun_clause(rng, meant, other, rng.choice(w.SUBJECT_VERBS)))
    return tuple(two_noun_clause(rng, other, meant, rng.choice(w.OBJECT_VERBS)))


def _subject_and_other(rng: Random, roles: Roles) -> list[str]:
    return subject_and_other(rng, *roles.forms, roles.other_plural, subject_first=roles.meant_first)


def _up_to_state(rng: Random, roles: Roles) -> tuple[str, ...]:
    """ "the cat sat on the mat because it was"."""
    return (*_clause(rng, roles), roles.pronouns[0], w.WERE[roles.meant_plural])


def _up_to_verb(rng: Random, roles: Roles) -> tuple[str, ...]:
    """ "near the boys , the girl often sees"."""
    start = _subject_and_other(rng, roles)
    return (*start, *maybe(rng, ADVERB, w.ADVERBS), rng.choice(VERBS)[roles.meant_plural])


def _numbers_differ(roles: Roles) -> bool:
    return roles.meant_plural != roles.other_plural


def _pronouns_differ(roles: Roles) -> bool:
    return roles.pronouns[0] != roles.pronouns[1]


def _rows(text: tuple[str, ...], roles: Roles) -> tuple[int, int]:
    """The rows of the two nouns, the meant one first; row 0 is the start token."""
    meant, other = roles.forms
    return text.index(meant) + 1, text.index(other) + 1
