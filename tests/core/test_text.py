"""A token is a span of the typed text: nothing is rewritten, nothing is half a sign, nothing typed is special."""

import itertools
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mha_core.text import MAX_TOKENS, PAD, SPECIAL, START, UNKNOWN, TextError, Vocabulary, word_spans

VOCABULARY = Vocabulary((*SPECIAL, "the", "cat", "sat", "down", "because", "was", "tired", "straße", "."))
FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
WALES = "\N{WAVING BLACK FLAG}\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f"
BRAZIL, JAPAN = "\U0001f1e7\U0001f1f7", "\U0001f1ef\U0001f1f5"
WAVE = "\N{WAVING HAND SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-4}"

# Signs that meet in real texts: letters of several scripts, marks, joiners, emoji parts, flags, blanks, controls.
signs = st.sampled_from(
    "aZé9_'’.-<>[]ß字عשกक\u0301\u0327\u093f\u064b\ufe0f\u20e3\u200d\u200c\N{MAN}\N{HEAVY BLACK HEART}"
    "\U0001f3fd\U0001f1e7\U0001f1f7\U000e0067\U000e007f \n\t\u00a0\u200b\ufeff\x00\ud800"
)
texts = st.text(max_size=40) | st.lists(signs, max_size=25).map("".join)


def labels(text):
    """What the screen shows for a text, without the start token."""
    return VOCABULARY.tokenize(text).labels[1:]


def splits(text, at):
    """Whether a cut before ``at`` would part a sign from what extends it: written from Unicode's rule, by hand."""
    after, before = text[at], text[at - 1]
    extends = unicodedata.category(after)[0] == "M" or after in "\u200c\u200d"
    extends = extends or 0x1F3FB <= ord(after) <= 0x1F3FF or 0xE0020 <= ord(after) <= 0xE007F
    # A mark behind a blank or a control sign has nothing to belong to.
    loose = before.isspace() or (unicodedata.category(before) in ("Cc", "Cs", "Cf") and before not in "\u200c\u200d")
    return extends and not loose


@settings(max_examples=200)
@given(texts)
def test_spans_and_gaps_rebuild_the_text_in_order(text):
    spans = list(word_spans(text))
    assert all(start < end for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    tokens = VOCABULARY.tokenize(text)
    rebuilt, at = "", 0
    for label, (start, end) in zip(tokens.labels[1:], spans, strict=True):
        rebuilt, at = rebuilt + text[at:start] + label, end
    assert rebuilt + text[at:] == text
    assert tokens.text == text


@settings(max_examples=200)
@given(texts)
def test_gaps_hold_nothing_that_can_be_seen(text):
    covered = {i for start, end in word_spans(text) for i in range(start, end)}
    for i, char in enumerate(text):
        if i not in covered:
            assert char.isspace() or unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zs", "Zl", "Zp")


@settings(max_examples=300)
@given(texts)
def test_no_cut_parts_a_sign_from_its_marks(text):
    for start, end in word_spans(text):
        assert start == 0 or not (text[start - 1].isprintable() and splits(text, start))
        assert end == len(text) or not splits(text, end)


@settings(max_examples=300)
@given(texts)
def test_one_way_of_writing_an_accent_gives_as_many_tokens_as_the_other(text):
    composed, apart = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    assert len(list(word_spans(composed))) == len(list(word_spans(apart)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat sat down.", ["The", "cat", "sat", "down", "."]),
        ("no no no no", ["no", "no", "no", "no"]),
        ("don't it’s 'quoted'", ["don't", "it’s", "'", "quoted", "'"]),
        ("re\u0301sume\u0301's end", ["re\u0301sume\u0301's", "end"]),
        ("snake_case, 3.14", ["snake_case", ",", "3", ".", "14"]),
        ("[PAD] [CLS] </s> <s> hello", ["[", "PAD", "]", "[", "CLS", "]", *"</s>", *"<s>", "hello"]),
        ("我爱你。 好", ["我爱你", "。", "好"]),
        ("مَرْحَبًا بالعالم", ["مَرْحَبًا", "بالعالم"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        (f"a{FAMILY}b {WAVE}!", ["a", FAMILY, "b", WAVE, "!"]),
        (f"{BRAZIL}{JAPAN} {WALES}.", [BRAZIL, JAPAN, WALES, "."]),
        ("1\ufe0f\u20e3 x", ["1\ufe0f\u20e3", "x"]),
        ("a\u200bb\x00c\nd", ["a", "b", "c", "d"]),
        ("", []),
        (" " * 10_000, []),
        ("\u200b\ufeff\u200d", []),
        ("<b>&amp;", ["<", "b", ">", "&", "amp", ";"]),
    ],
    ids=lambda value: ascii(value)[:30] if isinstance(value, str) else "",
)
def test_labels_are_exactly_what_was_typed(text, expected):
    assert labels(text) == expected


@given(texts)
def test_the_start_token_comes_first_and_nothing_typed_is_special(text):
    tokens = VOCABULARY.tokenize(text)
    first = tokens.items[0]
    assert (first.id, first.start, first.end) == (VOCABULARY.words.index(START), 0, 0)
    assert tokens.labels[0] == "start"
    assert tokens.n_typed == len(tokens.items) - 1 == len(tokens.ids) - 1
    special = {VOCABULARY.words.index(word) for word in (START, PAD)}
    assert not special & set(tokens.ids[1:])


@pytest.mark.parametrize("text", [*SPECIAL, "[PAD] [CLS] </s> <s> hello", "<PAD>", "start"])
def test_typed_special_words_are_unknown_words(text):
    unknown = VOCABULARY.words.index(UNKNOWN)
    assert set(VOCABULARY.tokenize(text).ids[1:]) == {unknown}
    assert VOCABULARY.row(text) is None


def test_known_words_are_found_whatever_their_case():
    tokens = VOCABULARY.tokenize("THE Cat sAt STRASSE down.")
    assert [VOCABULARY.words[i] for i in tokens.ids[1:4]] == ["the", "cat", "sat"]
    assert tokens.labels[1:4] == ["THE", "Cat", "sAt"]
    assert VOCABULARY.row("Straße") == VOCABULARY.row("STRASSE") == VOCABULARY.words.index("straße")


def test_a_vocabulary_with_capitals_is_found_too():
    vocabulary = Vocabulary((*SPECIAL, "Paris", "rome"))
    assert vocabulary.row("paris") == vocabulary.row("PARIS") == 3
    assert vocabulary.encode(["Paris", "rome", PAD]) == [3, 4, 0]


def test_unknown_words_are_marked_once_each_and_keep_their_spelling():
    tokens = VOCABULARY.tokenize("The Dog saw the dog, the Dog")
    assert tokens.unknown == ["Dog", "saw", "dog", ","]
    assert [token.known for token in tokens.items] == [True, True, False, False, True, False, False, True, False]
    assert VOCABULARY.tokenize("the cat").unknown == []


def test_suggestions_are_known_words_spelled_alike():
    assert VOCABULARY.nearest_words("Becuase")[0] == "because"
    assert VOCABULARY.nearest_words("tierd", count=1) == ["tired"]
    assert VOCABULARY.nearest_words("xylophone") == []
    assert VOCABULARY.nearest_words("pad") == VOCABULARY.nearest_words("") == VOCABULARY.nearest_words("c" * 41) == []
    assert not set(VOCABULARY.nearest_words("<unk>")) & set(SPECIAL)


@pytest.mark.parametrize("limit", [1, 5, MAX_TOKENS])
@pytest.mark.parametrize("text", ["no ", "字 ", ".", f"{FAMILY} "])
def test_the_limit_is_the_last_length_that_is_taken(text, limit):
    assert VOCABULARY.tokenize(text * (limit - 1), max_tokens=limit).n_typed == limit - 1
    assert VOCABULARY.tokenize(text * limit, max_tokens=limit).n_typed == limit
    with pytest.raises(TextError, match=f"has {limit + 1} tokens and the limit is {limit}; take out at least 1 word"):
        VOCABULARY.tokenize(text * (limit + 1), max_tokens=limit)


def test_the_usual_limit_counts_typed_tokens_only():
    assert len(VOCABULARY.tokenize("no " * MAX_TOKENS).items) == MAX_TOKENS + 1
    with pytest.raises(TextError, match="take out at least 4,872 words or signs"):
        VOCABULARY.tokenize("no " * 5_000)


def test_a_vocabulary_begins_with_the_special_entries():
    assert len(VOCABULARY) == len(VOCABULARY.words) == len(VOCABULARY.typeable) + len(SPECIAL)
    with pytest.raises(ValueError, match="starts with <pad>, <s>, <unk>"):
        Vocabulary(("the", "cat"))


@pytest.mark.parametrize(("letters", "fits"), [(99, True), (100, True), (101, False)])
def test_a_word_may_be_as_long_as_the_limit_and_no_longer(letters, fits):
    words = Vocabulary((*SPECIAL, "cat"))
    if fits:
        assert words.tokenize("a" * letters).n_typed == 1
    else:
        with pytest.raises(TextError, match="One word has 101 letters and the limit is 100"):
            words.tokenize("cat " + "a" * letters)
