"""Numbers as people type them, and pasted texts in links."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mha_view.numbers import Span, settled, typed_number
from mha_view.pasted import MAX_CODE, file_text, packed_text, unpacked_text

TOKENS = Span("Context", 0, 10**9, kilo=1024)


@pytest.mark.parametrize(
    ("text", "value"),
    [("131072", 131072), ("131,072", 131072), (" 131 072 ", 131072), ("131_072", 131072), ("128k", 131072),
     ("128 K", 131072), ("1.5k", 1536), ("1M", 2**20), ("10 million", 10**7), ("10 Million", 10**7), ("1e6", 10**6),
     ("128 thousand", 128_000), ("0", 0), ("4096.0", 4096), ("+7", 7)],
)  # fmt: skip
def test_tokens_as_people_type_them(text, value):
    assert typed_number(text, 1024) == value
    assert settled(text, TOKENS, 5).value == value
    assert settled(text, TOKENS, 5).problem == ""


@pytest.mark.parametrize(
    ("text", "value"), [("7B", 7 * 10**9), ("405 billion", 405 * 10**9), ("70.6b", 70_600_000_000)]
)
def test_other_numbers_count_in_thousands(text, value):
    assert typed_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "banana",
        "1,5",
        "12,34,567",
        "k",
        "1e999",
        "nan",
        "inf",
        "1 2",
        "0x10",
        "<b>1</b>",
        "١٢x",
        "7 parsecs",
        "--3",
    ],
)
def test_what_is_no_number_is_told_with_the_default(text):
    assert typed_number(text, 1024) is None
    found = settled(text, TOKENS, 77)
    assert found.value == 77
    assert found.problem.endswith("is no number; 77 is taken instead.")


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [("-4", 0, "Context can be 0 to 1,000,000,000. 0 is taken"), ("9" * 5000, 10**9, "1,000,000,000 is taken"),
     ("-" + "9" * 5000, 0, "0 is taken"), ("2e9", 10**9, "1,000,000,000 is taken"), ("2.6", 3, "whole number; 3 is")],
)  # fmt: skip
def test_a_wrong_number_gets_the_nearest_good_one_and_a_short_sentence(text, value, said):
    found = settled(text, TOKENS, 77)
    assert found.value == value
    assert said in found.problem
    assert len(found.problem) < 160


def test_nothing_typed_is_the_default_and_no_word():
    assert settled(None, TOKENS, 131_072).value == 131_072
    assert settled(None, TOKENS, 131_072).problem == ""


@given(some.integers(0, 10**9))
def test_a_number_is_read_as_it_is_written(number):
    assert typed_number(f"{number:,}", 1024) == typed_number(str(number)) == Fraction(number)


@given(some.text(alphabet=some.characters(exclude_categories=["Cs"])))
def test_a_text_comes_out_of_its_link_as_it_went_in(text):
    code = packed_text(text)
    assert code is not None
    assert unpacked_text(code) == text
    assert not set(code) & set("+/=&?#%")


@pytest.mark.parametrize("code", ["%%%", "abc", "AAAA", "eJw", "ü", "x" * 5000])
def test_a_damaged_code_is_none(code):
    assert unpacked_text(code) is None


def test_a_small_code_cannot_unpack_to_a_huge_text():
    import base64
    import zlib

    bomb = base64.urlsafe_b64encode(zlib.compress(b"0" * 3_000_000, 9)).decode()
    assert len(bomb) < MAX_CODE
    assert unpacked_text(bomb) is None
    assert packed_text("0" * 3_000_000) is None


def test_a_text_that_does_not_shrink_enough_is_left_out_of_the_link():
    import random

    noise = "".join(chr(random.Random(3).randrange(0x4E00, 0x9FFF)) for _ in range(10))
    assert packed_text("".join(chr(random.Random(i).randrange(0x4E00, 0x9FFF)) for i in range(9_000))) is None
    assert packed_text(noise) is not None


def test_files_are_read_as_utf_8_or_utf_16():
    assert file_text("{ü}".encode()) == file_text(b"\xef\xbb\xbf" + "{ü}".encode()) == "{ü}"
    assert file_text("{ü}".encode("utf-16")) == "{ü}"
    assert file_text(b"\x00\xff\xfe\x80") is None
