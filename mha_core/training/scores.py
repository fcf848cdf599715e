"""The figures of a trained model, as plain frozen values, and which of them decide whether it may be shipped.

A head that is right in one half of a balanced set and wrong in the other looks at a position, not at a word. So both
halves are kept, and only the worse one counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class TwoNouns:
    """How one head chooses between the right and the wrong noun, each figure from 0 to 1.

    first, second: share of the sentences where it looks more at the right noun, by the place of that noun.
    mass_first, mass_second: how much of its gaze rests on the right noun; wrong_first, wrong_second: on the wrong one.
    """

    first: float
    second: float
    mass_first: float
    mass_second: float
    wrong_first: float
    wrong_second: float

    @property
    def worse_half(self) -> float:
        """The lower of the two shares: what the head is worth."""
        return min(self.first, self.second)

    @property
    def mass(self) -> float:
        """The lower of the two masses on the right noun."""
        return min(self.mass_first, self.mass_second)


@dataclass(frozen=True)
class HeadScores:
    """What one head was seen to do.

    previous: mass on the token before, on random words. prefix: mass on what followed the last time, in a list said
    twice (Olsson et al. 2022). best_shift: which of the 1 to 6 places behind the last time gets most of its gaze.
    shifted: how much.
    """

    layer: int
    head: int
    coreference: TwoNouns
    agreement: TwoNouns
    previous: float
    prefix: float
    shifted: float
    best_shift: int

    @property
    def name(self) -> str:
        """Layer and head, both from 0: "L1H5"."""
        return f"L{self.layer}H{self.head}"


@dataclass(frozen=True)
class TaskScores:
    """How often the model expects the right next word, and ``validation_loss`` in nats per word of new sentences."""

    coreference: float
    mismatch: float
    agreement: float
    reflexive: float
    copy: float
    validation_loss: float


@dataclass(frozen=True)
class Controls:
    """What a head scores that spreads its gaze evenly over everything it may see.

    coreference, agreement: its mass on the right noun. Its choice between two nouns would be right half the time.
    """

    coreference: float
    agreement: float
    previous: float
    prefix: float


@dataclass(frozen=True)
class Gates:
    """The figures that decide whether weights may be shipped; heads count by their worse half."""

    coreference_head: float
    coreference_mass: float
    agreement_head: float
    prefix_head: float
    previous_head: float
    copy: float
    validation_loss: float

    def missed(self) -> tuple[str, ...]:
        """The names of the figures that are not good enough to ship."""
        names = [field.name for field in fields(self) if field.name != "validation_loss"]
        low = [name for name in names if getattr(self, name) < getattr(REQUIRED, name)]
        return (*low, *(["validation_loss"] * (self.validation_loss > REQUIRED.validation_loss)))


REQUIRED = Gates(
    coreference_head=0.98,
    coreference_mass=0.9,
    agreement_head=0.98,
    prefix_head=0.8,
    previous_head=0.5,
    copy=0.97,
    validation_loss=2.0,
)


@dataclass(frozen=True)
class Evaluation:
    """All figures of one model: its tasks, every head, and what chance would give."""

    tasks: TaskScores
    heads: tuple[HeadScores, ...]
    controls: Controls

    def best(self, figure: Callable[[HeadScores], float | tuple[float, ...]]) -> HeadScores:
        """The head with the highest figure; of equals, the first."""
        return max(self.heads, key=figure)

    @property
    def coreference_head(self) -> HeadScores:
        """The head that best looks from a pronoun to the noun it means."""
        return self.best(lambda head: (head.coreference.worse_half, head.coreference.mass))

    @property
    def agreement_head(self) -> HeadScores:
        """The head that best looks from before the verb to its subject."""
        return self.best(lambda head: (head.agreement.worse_half, head.agreement.mass))

    @property
    def previous_head(self) -> HeadScores:
        """The head that looks most at the token before."""
        return self.best(lambda head: head.previous)

    @property
    def prefix_head(self) -> HeadScores:
        """The head that looks most at what followed the last time."""
        return self.best(lambda head: head.prefix)

    def gates(self) -> Gates:
        """The figures that are compared with ``REQUIRED``."""
        coreference = self.coreference_head.coreference
        return Gates(
            coreference_head=coreference.worse_half,
            coreference_mass=coreference.mass,
            agreement_head=self.agreement_head.agreement.worse_half,
            prefix_head=self.prefix_head.prefix,
            previous_head=self.previous_head.previous,
            copy=self.tasks.copy,
            validation_loss=self.tasks.validation_loss,
        )
