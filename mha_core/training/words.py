"""The words of the grammar: nouns in seven classes, and the verbs and states that belong to a class."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """A noun with both its forms; ``kind`` is its class, a rare noun is drawn one twelfth as often."""

    singular: str
    plural: str
    kind: str
    rare: bool = False

    def form(self, plural: bool) -> str:
        """The word for one or for many."""
        return self.plural if plural else self.singular

    def pronoun(self, plural: bool) -> str:
        """The word that stands for it: it, she, he or they."""
        return "they" if plural else PRONOUNS.get(self.kind, "it")


PRONOUNS = {"female": "she", "male": "he"}
REFLEXIVES = {"it": "itself", "she": "herself", "he": "himself", "they": "themselves"}


def _nouns(kind: str, common: str, rare: str) -> tuple[Noun, ...]:
    """Nouns of one class, from words like "cat" or "mouse/mice"; a plain word gets an s."""

    def noun(word: str, rare: bool) -> Noun:
        singular, _, plural = word.partition("/")
        return Noun(singular, plural if plural else singular + "s", kind, rare)

    return (*(noun(word, False) for word in common.split()), noun(rare, True))


NOUNS: tuple[Noun, ...] = (
    *_nouns("animal", "cat dog horse bird mouse/mice cow", "fox/foxes"),
    *_nouns("female", "girl woman/women queen aunt sister", "duchess/duchesses"),
    *_nouns("male", "boy man/men king uncle brother", "duke"),
    *_nouns("textile", "mat rug coat towel scarf/scarves", "quilt"),
    *_nouns("furniture", "chair table bed desk sofa", "stool"),
    *_nouns("container", "box/boxes basket bag bucket jar", "urn"),
    *_nouns("food", "cake apple pear bun egg", "melon"),
)
RARE_WEIGHT = 1 / 12

# What can be said of a noun, by its class. Men and women share theirs: nothing here tells them apart but he and she.
STATES = {
    "animal": ("tired", "hungry", "sleepy", "thirsty"),
    "person": ("happy", "proud", "clever", "polite"),
    "textile": ("soft", "dusty", "torn", "woolen"),
    "furniture": ("wooden", "broken", "sturdy", "painted"),
    "container": ("empty", "full", "closed", "heavy"),
    "food": ("fresh", "sweet", "ripe", "tasty"),
}
# What a noun did: an animal makes its own sound, the other classes share theirs.
SOUNDS = {
    "cat": "meowed",
    "dog": "barked",
    "horse": "neighed",
    "bird": "chirped",
    "mouse": "squeaked",
    "cow": "mooed",
    "fox": "yelped",
}
ACTS = {
    "person": ("smiled", "laughed"),
    "textile": ("frayed", "shrank"),
    "furniture": ("creaked", "wobbled"),
    "container": ("rattled", "leaked"),
    "food": ("crumbled", "spoiled"),
}

# After these the pronoun means the one who did it, the first noun.
SUBJECT_VERBS = (
    ("sat", "on"),
    ("slept", "on"),
    ("rested", "on"),
    ("lay", "on"),
    ("hid", "under"),
    ("stood", "near"),
)
# After these it means the one it was done to, the second noun.
OBJECT_VERBS = (
    ("looked", "for"),
    ("asked", "for"),
    ("waited", "for"),
    ("reached", "for"),
    ("stared", "at"),
    ("pointed", "at"),
)
SIMPLE_ENDINGS = (("sat", "down"), ("lay", "down"), ("slept",), ("waited",))

# One and many: "it sleeps", "they sleep".
SEE = ("sees", "see")
SELF_VERBS = (SEE, ("hides", "hide"), ("likes", "like"), ("hurts", "hurt"), ("knows", "know"))
PLAIN_VERBS = (
    ("sleeps", "sleep"),
    ("waits", "wait"),
    ("falls", "fall"),
    ("moves", "move"),
    ("stays", "stay"),
    ("shakes", "shake"),
)
BE = ("is", "are")
WERE = ("was", "were")

PLACES = ("near", "behind", "beside", "under")
ADVERBS = ("often", "always", "never", "still")
ADJECTIVES = ("old", "new", "big", "small", "red", "white", "green", "black")
LINKS = ("because", ".")
LITTLE_WORDS = ("the", ".", ",", "because", "yesterday", "that")


def person_or(kind: str) -> str:
    """The key into STATES and ACTS for a class of nouns: both classes of people count as one."""
    return "person" if kind in PRONOUNS else kind


def states(noun: Noun) -> tuple[str, ...]:
    """The states that fit a noun, and no noun of another class."""
    return STATES[person_or(noun.kind)]


def acts(noun: Noun) -> tuple[str, ...]:
    """What a noun can do in one word, after its pronoun."""
    return (SOUNDS[noun.singular],) if noun.kind == "animal" else ACTS[person_or(noun.kind)]
