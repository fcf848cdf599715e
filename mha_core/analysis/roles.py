"""What heads are seen to do, in measured numbers, and the one rule that turns numbers into names.

A name is a choice; the thresholds stand here and nowhere else. A head that looks at the right noun in one example may
only look at subjects, or at the first noun: names for choosing between two nouns ask for both halves of a balanced
set, and for more than the luckiest of all heads reaches when the answers are flipped at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mha_core.training.scores import TaskScores, TwoNouns

OFFSETS = range(-3, 4)

# Roles that choose between a right and a wrong noun: the accuracy of each half, and right against wrong weight.
LEAST_HALF = 0.6
LEAST_MASS_RATIO = 2.0
# Roles that look at one kind of place: the mean weight there, and how many times an even gaze.
LEAST_MASS = 0.5
LEAST_OVER_EVEN = 5.0
# Rare words: how many times the weight of a common word in the same place.
LEAST_RARE_RATIO = 2.0


@dataclass(frozen=True)
class Dwelling:
    """Mean weight a head puts on one kind of place, in the earlier and the later half of the rows that have one.

    Only rows that see ten keys or more count: in shorter ones an even gaze is too near to any look.
    even_first, even_second: what a head puts there that spreads its weight evenly over everything it may see.
    """

    first: float
    second: float
    even_first: float
    even_second: float

    @property
    def mass(self) -> float:
        """The lower of the two halves: what the head is worth."""
        return min(self.first, self.second)

    @property
    def even(self) -> float:
        """The even gaze's mean over the two halves."""
        return (self.even_first + self.even_second) / 2


@dataclass(frozen=True)
class HeadEvidence:
    """Everything measured about one head, on sentences and word lists that no training run has seen.

    coreference: from a pronoun to its noun. agreement: from the word before the verb to its subject;
    agreement_at_verb: the same from the verb itself. offsets: 3 tokens back to 3 ahead, on random words; the middle
    one is the token itself. first_token: on the start token (a sink, Xiao et al. 2023). same_token: on an earlier token
    that is the same word. prefix: on what followed the same word last time, in a list said twice (Olsson et al. 2022);
    best_prefix: on the place ``best_shift`` (1 to 6) behind it that gets most. rare, common: weight on a rare noun,
    and on a common one in its place. entropy: bits, mean over the words of sentences. without: what the model scores
    with this head switched off. importance: |d loss / d gate|, mean over sentences (Michel et al. 2019).
    """

    layer: int
    head: int
    coreference: TwoNouns
    agreement: TwoNouns
    agreement_at_verb: TwoNouns
    offsets: tuple[Dwelling, ...]
    first_token: Dwelling
    same_token: Dwelling
    prefix: Dwelling
    best_prefix: Dwelling
    best_shift: int
    rare: float
    common: float
    entropy: float
    without: TaskScores
    importance: float

    @property
    def name(self) -> str:
        """Layer and head, both from 0: "L1H5"."""
        return f"L{self.layer}H{self.head}"

    @property
    def rare_ratio(self) -> float:
        """How many times more weight a rare noun gets than a common one."""
        return self.rare / self.common if self.common > 0 else 0.0


@dataclass(frozen=True)
class Luck:
    """What the best of all heads reaches by chance: the 95th percentile of its accuracy when answers are flipped."""

    coreference: float
    agreement: float
    agreement_at_verb: float
    flips: int


@dataclass(frozen=True)
class Counts:
    """How many sentences or lists stand behind each kind of figure."""

    nouns: int
    random_lists: int
    repeated_lists: int
    rare_pairs: int
    tasks: int
    loss: int


@dataclass(frozen=True)
class Shown:
    """One text and one look of a head: from ``row`` to ``key``, where its name says it should look.

    weight: there. instead, instead_weight: the token it looks at most. Row 0 is the start token.
    """

    text: str
    row: int
    key: int
    weight: float
    instead: int
    instead_weight: float


@dataclass(frozen=True)
class Showing:
    """A name of a head with a text that shows it best, and one where it fails; None when no text made it fail.

    tried: how many texts were looked through.
    """

    layer: int
    head: int
    role: str
    best: Shown
    counter: Shown | None
    tried: int


@dataclass(frozen=True)
class Evidence:
    """All that is known about one model's heads.

    base: what the model scores with all heads on, on the same sentences as every head's ``without``. sha256: of the
    weights that were measured. showings: two texts for every name that a head earned.
    """

    name: str
    sha256: str
    seed: int
    counts: Counts
    base: TaskScores
    luck: Luck
    heads: tuple[HeadEvidence, ...]
    showings: tuple[Showing, ...] = ()

    def head(self, layer: int, head: int) -> HeadEvidence:
        """The figures of one head."""
        return next(found for found in self.heads if (found.layer, found.head) == (layer, head))


@dataclass(frozen=True)
class Role:
    """A name that a head may earn.

    holds: the rule. score: what heads are ranked by. control: what no skill would give. detail: both halves in words.
    letter: its sign in small maps.
    """

    name: str
    letter: str
    about: str
    holds: Callable[[HeadEvidence, Luck], bool]
    score: Callable[[HeadEvidence], float]
    control: Callable[[HeadEvidence, Luck], float]
    detail: Callable[[HeadEvidence], str]


@dataclass(frozen=True)
class Label:
    """A name that a head earned, with what it rests on: its score, the control, and the next best head."""

    role: Role
    head: HeadEvidence
    score: float
    control: float
    runner_up: HeadEvidence | None
    runner_up_score: float


def _chooses(name: str, letter: str, about: str, figure: str) -> Role:
    def nouns(head: HeadEvidence) -> TwoNouns:
        return getattr(head, figure)

    def holds(head: HeadEvidence, luck: Luck) -> bool:
        found = nouns(head)
        far = found.mass_first > LEAST_MASS_RATIO * found.wrong_first
        far = far and found.mass_second > LEAST_MASS_RATIO * found.wrong_second
        accuracy = (found.first + found.second) / 2
        return accuracy > getattr(luck, figure) and found.worse_half > LEAST_HALF and far

    def control(_: HeadEvidence, luck: Luck) -> float:
        return getattr(luck, figure)

    def detail(head: HeadEvidence) -> str:
        found = nouns(head)
        right, wrong = (found.mass_first + found.mass_second) / 2, (found.wrong_first + found.wrong_second) / 2
        return f"right {found.first:.2f} first, {found.second:.2f} second; weight {right:.2f}, on the other {wrong:.2f}"

    return Role(name, letter, about, holds, lambda head: nouns(head).worse_half, control, detail)


def _dwells(name: str, letter: str, about: str, place: Callable[[HeadEvidence], Dwelling]) -> Role:
    def holds(head: HeadEvidence, _: Luck) -> bool:
        found = place(head)
        halves = ((found.first, found.even_first), (found.second, found.even_second))
        return all(mass >= LEAST_MASS and mass >= LEAST_OVER_EVEN * even for mass, even in halves)

    def detail(head: HeadEvidence) -> str:
        return f"earlier rows {place(head).first:.2f}, later {place(head).second:.2f}"

    return Role(name, letter, about, holds, lambda head: place(head).mass, lambda head, _: place(head).even, detail)


def _offset(shift: int) -> Callable[[HeadEvidence], Dwelling]:
    return lambda head: head.offsets[OFFSETS.index(shift)]


ROLES = (
    _chooses("coreference", "C", "from a pronoun to the noun it means", "coreference"),
    _chooses("agreement", "A", "from the word before the verb to its subject", "agreement"),
    _chooses("agreement at the verb", "V", "from the verb to its subject", "agreement_at_verb"),
    _dwells("previous token", "P", "on the token before", _offset(-1)),
    _dwells("two back", "2", "on the token two before", _offset(-2)),
    _dwells("three back", "3", "on the token three before", _offset(-3)),
    _dwells("itself", "S", "on the token itself", _offset(0)),
    _dwells("same token", "=", "on an earlier token that is the same word", lambda head: head.same_token),
    _dwells("first-token sink", "F", "on the start token", lambda head: head.first_token),
    _dwells("induction", "I", "on what followed the same word last time", lambda head: head.prefix),
    Role(
        "rare word",
        "R",
        "on rare nouns more than on common ones in the same place",
        lambda head, _: head.rare_ratio >= LEAST_RARE_RATIO,
        lambda head: head.rare_ratio,
        lambda *_: 1.0,
        lambda head: f"weight {head.rare:.3f} on the rare noun, {head.common:.3f} on the common one",
    ),
)


def labels(evidence: Evidence) -> tuple[Label, ...]:
    """Every name that a head of this model earned, head by head; most heads earn none."""
    heads, luck = evidence.heads, evidence.luck
    return tuple(_label(role, head, evidence) for head in heads for role in ROLES if role.holds(head, luck))


def best(evidence: Evidence, role: Role) -> Label:
    """The head that scores highest at a role, whether it earns the name or not."""
    return _label(role, max(evidence.heads, key=role.score), evidence)


def _label(role: Role, head: HeadEvidence, evidence: Evidence) -> Label:
    others = [other for other in evidence.heads if other is not head]
    runner_up = max(others, key=role.score, default=None)
    second = 0.0 if runner_up is None else role.score(runner_up)
    return Label(role, head, role.score(head), role.control(head, evidence.luck), runner_up, second)
