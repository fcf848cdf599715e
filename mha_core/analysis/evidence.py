"""Measure what every head of the shipped models does, and keep it: ``python -m mha_core.analysis.evidence [names]``.

All sentences and lists are drawn for this purpose: no training run and no gate has used their seeds. What is measured
is stored beside the weights, with their SHA-256, so that figures and weights cannot drift apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from mha_core import zoo
from mha_core.analysis import measures as m
from mha_core.analysis.roles import OFFSETS, Counts, Dwelling, Evidence, HeadEvidence, Luck, labels
from mha_core.analysis.showcase import showcase
from mha_core.seeds import generator_for
from mha_core.text import Vocabulary
from mha_core.training import probes
from mha_core.training.evaluate import (
    SHIFTS,
    Exam,
    all_heads,
    make_exam,
    noun_gaze,
    noun_masses,
    offset_places,
    place_gaze,
    prefix_places,
    read,
    score,
)
from mha_core.training.grammar import LIST_LENGTHS
from mha_core.training.probes import Probe
from mha_core.training.recipe import token_rows
from mha_core.transformer import Transformer
from mha_core.zoo.jsons import build, rounded

SEED = 0
FLIPS = 200
# Lists are as long as the longest in training: what a head does further on it has never been taught.
TRAINED_WORDS = 2 * max(LIST_LENGTHS)
COUNTS = Counts(nouns=600, random_lists=600, repeated_lists=600, rare_pairs=600, tasks=200, loss=400)
FIX = "run `make evidence` to make it again"
NOUN_SETS: dict[str, Callable[[int, str], list[Probe]]] = {
    "coreference": probes.coreference_probes,
    "agreement": probes.agreement_probes,
    "agreement_at_verb": probes.verb_probes,
}

# One figure for every head, by layer and head.
Table = Sequence[Sequence[Any]]


class EvidenceError(Exception):
    """Raised for stored evidence that cannot be used; the message names the file and what to do."""


@dataclass(frozen=True)
class Measuring:
    """A model and what it is asked: how many sentences of each kind, drawn from which seed."""

    model: Transformer
    vocabulary: Vocabulary
    counts: Counts
    seed: int

    def name(self, what: str) -> str:
        """The seed of one kind of sentences, used for nothing else."""
        return f"evidence {self.seed} {what}"

    def rows(self, texts: Sequence[Sequence[str]]) -> Tensor:
        """Texts in rows of the vocabulary, (s, n)."""
        return token_rows(texts, self.vocabulary)

    def exam(self) -> Exam:
        """What the model is scored on, with and without each head."""
        return make_exam(self.vocabulary, self.counts.tasks, self.counts.loss, self.name(""))


def measure(model: Transformer, card: zoo.Card, counts: Counts = COUNTS, seed: int = SEED) -> Evidence:
    """Everything about the heads of one model; a quarter of a minute to a minute on one core."""
    asked = Measuring(model, card.vocabulary, counts, seed)
    exam = asked.exam()
    tables, luck = figures(asked, exam)
    tables["without"] = m.without_each(model, exam)
    heads = tuple(
        HeadEvidence(layer, head, **{name: table[layer][head] for name, table in tables.items()})
        for layer, head in all_heads(model)
    )
    evidence = Evidence(card.name, card.sha256, seed, counts, score(model, exam), luck, heads)
    return replace(evidence, showings=showcase(model, card.vocabulary, labels(evidence)))


def figures(asked: Measuring, exam: Exam) -> tuple[dict[str, Table], Luck]:
    """All that can be told from passes with every head on, under the names of HeadEvidence: the quick part."""
    nouns, luck = _nouns(asked)
    places = {**_random(asked), **_echoes(asked), **_repeated(asked)}
    return {**nouns, **places, **_rare(asked), **_sentences(asked.model, exam.sentences)}, luck


def _nouns(asked: Measuring) -> tuple[dict[str, Table], Luck]:
    """Choices between two nouns, and how well the best head would choose by luck."""
    tables, luck = {}, {}
    for name, make in NOUN_SETS.items():
        sentences = make(asked.counts.nouns, asked.name(name))
        patterns = read(asked.model, asked.rows([probe.words for probe in sentences])).patterns
        tables[name] = noun_gaze(patterns, sentences)
        generator = generator_for(asked.seed, "flips", name)
        luck[name] = m.best_by_luck(*noun_masses(patterns, sentences), FLIPS, generator)
    return tables, Luck(**luck, flips=FLIPS)


def _random(asked: Measuring) -> dict[str, Table]:
    """Places that are a matter of position alone, on random words."""
    rows = asked.rows(probes.word_salad(asked.counts.random_lists, asked.name("salad"), TRAINED_WORDS))
    reading = read(asked.model, rows)
    n = rows.shape[1]
    by_shift = [m.dwellings(reading, _for_all(rows, offset_places(n, shift))) for shift in OFFSETS]
    return {"offsets": _side_by_side(by_shift), "first_token": m.dwellings(reading, _for_all(rows, m.start_places(n)))}


def _echoes(asked: Measuring) -> dict[str, Table]:
    """Words that were said before, among random words."""
    rows = asked.rows(probes.echoing_lists(asked.counts.random_lists, asked.name("echoes"), TRAINED_WORDS))
    return {"same_token": m.dwellings(read(asked.model, rows), m.same_word_places(rows))}


def _repeated(asked: Measuring) -> dict[str, Table]:
    """What followed the last time, in lists said twice."""
    rows = asked.rows(probes.repeated_lists(asked.counts.repeated_lists, asked.name("repeated")))
    reading, n = read(asked.model, rows), rows.shape[1]
    by_shift = [m.dwellings(reading, _for_all(rows, prefix_places(n, shift))) for shift in SHIFTS]
    best = [[max(zip(head, SHIFTS, strict=True), key=_mass) for head in layer] for layer in _side_by_side(by_shift)]
    return {
        "prefix": by_shift[0],
        "best_prefix": [[dwelling for dwelling, _ in layer] for layer in best],
        "best_shift": [[shift for _, shift in layer] for layer in best],
    }


def _rare(asked: Measuring) -> dict[str, Table]:
    """The weight that later rows put on a rare noun, and on a common one in its place."""
    pairs = probes.rare_pairs(asked.counts.rare_pairs, asked.name("rare"))

    def weight(texts: Sequence[Sequence[str]]) -> Table:
        rows = asked.rows(texts)
        places = m.later_rows([pair.row for pair in pairs], [1 + len(text) for text in texts], rows.shape[1])
        return place_gaze(read(asked.model, rows).patterns, places).tolist()

    return {"rare": weight([pair.rare for pair in pairs]), "common": weight([pair.common for pair in pairs])}


def _sentences(model: Transformer, rows: Tensor) -> dict[str, Table]:
    """How spread out a head's gaze is on sentences of the grammar, and how much its gate weighs."""
    entropy, importance = m.mean_entropy(read(model, rows), rows), m.importance(model, rows)
    return {"entropy": entropy.tolist(), "importance": importance.tolist()}


def _mass(found: tuple[Dwelling, int]) -> float:
    return found[0].mass


def _for_all(rows: Tensor, places: Tensor) -> Tensor:
    # (n, n) -> (s, n, n)
    return places.expand(len(rows), -1, -1)


def _side_by_side(tables: Sequence[Table]) -> Table:
    """Tables of one figure as one table of tuples."""
    return [list(zip(*layers, strict=True)) for layers in zip(*tables, strict=True)]


def path_of(name: str, folder: Path = zoo.FOLDER) -> Path:
    """Where the evidence of a model lies."""
    return folder / "evidence" / f"{name}.json"


def find(name: str, folder: Path = zoo.FOLDER) -> Evidence | None:
    """The stored evidence of a model, None where there is none.

    Raises EvidenceError for a file that cannot be read or belongs to other weights, ZooError for a bad card.
    """
    path, card = path_of(name, folder), zoo.load_card(name, folder)
    if not path.exists():
        return None
    try:
        evidence = build(Evidence, json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise EvidenceError(f"{path.name} is no evidence that this version can read ({error}); {FIX}.") from error
    if evidence.sha256 != card.sha256:
        raise EvidenceError(f"{path.name} was measured on other weights than those of its card; {FIX}.")
    measured, expected = [(h.layer, h.head, len(h.offsets)) for h in evidence.heads], _places(card)
    if measured != expected:
        raise EvidenceError(f"{path.name} does not hold the {len(expected)} heads of its model; {FIX}.")
    return evidence


def _places(card: zoo.Card) -> list[tuple[int, int, int]]:
    recipe = card.recipe
    return [(layer, head, len(OFFSETS)) for layer in range(recipe.n_layers) for head in range(recipe.n_heads)]


def store(evidence: Evidence, folder: Path = zoo.FOLDER) -> Path:
    """Write evidence in four digits, one line per head; returns its path."""
    plain = rounded(asdict(evidence), lambda value: float(f"{value:.4g}"))
    heads = ",\n".join(_text(head) for head in plain.pop("heads"))
    path = path_of(evidence.name, folder)
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{_text(plain)[:-1]},\n"heads":[\n{heads}\n]}}\n')
    return path


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def is_stored(name: str, folder: Path = zoo.FOLDER) -> bool:
    """Whether a model's evidence is there and can be used."""
    try:
        return find(name, folder) is not None
    except EvidenceError:
        return False


def main(arguments: list[str] | None = None) -> int:
    """Measure the named models, all of the zoo when none is named, unless their evidence is there."""
    parser = argparse.ArgumentParser(prog="python -m mha_core.analysis.evidence", description=__doc__)
    parser.add_argument("names", nargs="*", help="models such as grammar-d128-h8-g8; all when left out")
    parser.add_argument("--folder", type=Path, default=zoo.FOLDER, help="folder of the weights and cards")
    options = parser.parse_args(arguments)
    names = options.names or [card.name for card in zoo.available(options.folder)]
    for number, name in enumerate(names, start=1):
        print(f"{number} of {len(names)} {name}: {_measured(name, options.folder)}", flush=True)
    return 0


def _measured(name: str, folder: Path) -> str:
    """Measure and store one model; says in a few words how that went."""
    if is_stored(name, folder):
        return "is there"
    started = time.monotonic()
    path = store(measure(*zoo.load(name, folder)), folder)
    return f"{time.monotonic() - started:.0f} s, {path.stat().st_size / 1000:.0f} kB"


if __name__ == "__main__":
    sys.exit(main())
