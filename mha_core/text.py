"""From typed text to tokens: a token is a span of what was typed, never a rewritten copy of it."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

START = "<s>"
PAD = "<pad>"
UNKNOWN = "<unk>"
SPECIAL = (PAD, START, UNKNOWN)

MAX_TOKENS = 128
MAX_TOKEN_LETTERS = 100
# Beyond this a text is not even split: splitting takes time that other visitors wait for.
MAX_CHARACTERS = 20_000
MAX_WORD_FOR_SUGGESTIONS = 40

ZERO_WIDTH_JOINER = "\u200d"
ZERO_WIDTH_NON_JOINER = "\u200c"
APOSTROPHES = "'\u2019"
EMOJI_SKIN_TONES = range(0x1F3FB, 0x1F400)
EMOJI_TAGS = range(0xE0020, 0xE0080)
REGIONAL_INDICATORS = range(0x1F1E6, 0x1F200)


@dataclass(frozen=True)
class Token:
    """One row of every picture.

    id: row in the embedding table. start, end: the span of the typed text, empty for the start token.
    known: whether the vocabulary has the word (the look-up ignores case).
    """

    id: int
    start: int
    end: int
    known: bool


@dataclass(frozen=True)
class Tokens:
    """The start token and the tokens of a text, in order; labels are exactly what was typed."""

    text: str
    items: tuple[Token, ...]

    @property
    def ids(self) -> list[int]:
        """Embedding rows, the start token first."""
        return [token.id for token in self.items]

    @property
    def labels(self) -> list[str]:
        """What was typed, token by token; the start token, which nobody typed, is called "start"."""
        return [self.text[token.start : token.end] if token.end > token.start else "start" for token in self.items]

    @property
    def n_typed(self) -> int:
        """How many tokens were typed (the start token is not counted)."""
        return len(self.items) - 1

    @property
    def unknown(self) -> list[str]:
        """The typed words that the vocabulary lacks, each once, in order."""
        return list(dict.fromkeys(self.text[t.start : t.end] for t in self.items if not t.known))


class TextError(ValueError):
    """Raised for a text that cannot be shown; the message says what to do."""


@dataclass(frozen=True)
class Vocabulary:
    """The words a model knows; the first entries are special and can never be typed."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.words[: len(SPECIAL)] != SPECIAL:
            raise ValueError(f"a vocabulary starts with {', '.join(SPECIAL)}, not {self.words[: len(SPECIAL)]}")
        rows = {word: row for row, word in enumerate(self.words)}
        object.__setattr__(self, "_row_of", {word.casefold(): row for word, row in rows.items()} | rows)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def typeable(self) -> tuple[str, ...]:
        """The words that a person can type, without the special entries."""
        return self.words[len(SPECIAL) :]

    def row(self, word: str) -> int | None:
        """The embedding row of a word, whatever its case; None when it is not known or is a special entry."""
        rows: dict[str, int] = getattr(self, "_row_of")
        row = rows.get(word, rows.get(word.casefold()))
        return row if row is not None and row >= len(SPECIAL) else None

    def encode(self, words: list[str]) -> list[int]:
        """Embedding rows for words of the vocabulary, special entries allowed: for training, not for typed text."""
        rows: dict[str, int] = getattr(self, "_row_of")
        return [rows[word] for word in words]

    def tokenize(self, text: str, *, max_tokens: int = MAX_TOKENS) -> Tokens:
        """Split ``text`` into tokens behind a start token; unknown words are marked, not changed.

        Raises TextError for more than ``max_tokens`` typed tokens, for one longer than MAX_TOKEN_LETTERS, and for a
        text longer than MAX_CHARACTERS.
        """
        if len(text) > MAX_CHARACTERS:
            raise TextError(
                f"The text has {len(text):,} characters and the limit is {MAX_CHARACTERS:,}; shorten it to at most "
                f"{max_tokens:,} words."
            )
        rows = {special: row for row, special in enumerate(SPECIAL)}
        items = [Token(rows[START], 0, 0, known=True)]
        spans = list(word_spans(text))
        if len(spans) > max_tokens:
            over = len(spans) - max_tokens
            words = "1 word or sign" if over == 1 else f"{over:,} words or signs"
            raise TextError(
                f"The text has {len(spans):,} tokens and the limit is {max_tokens:,}; take out at least {words}."
            )
        longest = max((end - start for start, end in spans), default=0)
        if longest > MAX_TOKEN_LETTERS:
            raise TextError(
                f"One word has {longest:,} letters and the limit is {MAX_TOKEN_LETTERS}; shorten it or split it."
            )
        for start, end in spans:
            row = self.row(text[start:end])
            items.append(Token(rows[UNKNOWN] if row is None else row, start, end, known=row is not None))
        return Tokens(text, tuple(items))

    def nearest_words(self, word: str, count: int = 3) -> list[str]:
        """The known words spelled most like ``word``, best first; none for a very long word."""
        if len(word) > MAX_WORD_FOR_SUGGESTIONS:
            return []
        return difflib.get_close_matches(word.casefold(), self.typeable, n=count, cutoff=0.5)


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of every token: a run of letters, digits and marks, or one other visible sign.

    Combining marks, joined emoji, skin tones and flags stay with what they belong to, so that a label is
    never half a sign. White space and invisible control signs separate tokens and are none themselves.
    """
    start: int | None = None
    for i in range(len(text)):
        if start is None:
            start = i if _visible(text[i]) else None
        elif not _visible(text[i]) and not _extends(text[i]):
            yield start, i
            start = None
        elif not _belongs(text, start, i):
            yield start, i
            start = i
    if start is not None:
        yield start, len(text)


def _visible(char: str) -> bool:
    return not char.isspace() and unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zs", "Zl", "Zp")


def _word_sign(char: str) -> bool:
    return char.isalnum() or char == "_"


def _extends(char: str) -> bool:
    """Whether a sign is part of the one before it, wherever it stands (Grapheme_Cluster_Break=Extend in Unicode)."""
    return (
        unicodedata.category(char).startswith("M")
        or char in (ZERO_WIDTH_JOINER, ZERO_WIDTH_NON_JOINER)
        or ord(char) in EMOJI_SKIN_TONES
        or ord(char) in EMOJI_TAGS
    )


def _belongs(text: str, start: int, i: int) -> bool:
    """Whether the sign at ``i`` continues the token that began at ``start``."""
    char, before = text[i], text[i - 1]
    if _extends(char) or before == ZERO_WIDTH_JOINER:
        return True
    if ord(char) in REGIONAL_INDICATORS and ord(before) in REGIONAL_INDICATORS:
        return (i - start) % 2 == 1
    in_word = _word_sign(text[start])
    if _word_sign(char):
        return in_word
    # An apostrophe belongs to its word when a letter follows: "don't" is one token.
    followed = i + 1 < len(text) and text[i + 1].isalpha()
    return in_word and char in APOSTROPHES and followed
