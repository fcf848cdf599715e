"""The grammar and its probes: the answer of every sentence is determined, and position alone gives it away in none."""

from collections import Counter

import pytest

from mha_core.text import SPECIAL
from mha_core.training import probes
from mha_core.training import words as w
from mha_core.training.grammar import LIST_LENGTHS, SHARES, build_vocabulary, sentences

VOCABULARY = build_vocabulary()
NOUN_OF = {noun.form(many): (noun, many) for noun in w.NOUNS for many in (False, True)}
SETS = {
    "coreference": probes.coreference_probes,
    "mismatch": probes.mismatch_probes,
    "agreement": probes.agreement_probes,
    "reflexive": probes.reflexive_probes,
    "verb": probes.verb_probes,
}


@pytest.fixture(scope="module")
def drawn():
    return sentences(5_000, "laws")


def nouns_in(words):
    return [NOUN_OF[word] for word in words if word in NOUN_OF]


def is_list(words):
    return words[: len(words) // 2] == words[len(words) // 2 :]


@pytest.mark.parametrize(
    "text",
    [
        "The cat sat on the mat because it was tired.",
        "The cat looked for the mat because it was soft.",
        "The mat lay on the cat because it was soft.",
        "The cats sat on the mat because they were tired.",
        "Near the boys, the girl often sees herself.",
        "The boy that the girls see always hides.",
        "The cat sat down.",
    ],
)
def test_the_sentences_of_the_lessons_are_known_word_by_word(text):
    assert VOCABULARY.tokenize(text).unknown == []


def test_the_vocabulary_holds_every_word_once_and_no_more_than_the_model_needs(drawn):
    assert len(set(VOCABULARY.words)) == len(VOCABULARY)
    assert 190 <= len(VOCABULARY) <= 220
    assert {word for words in drawn for word in words} == set(VOCABULARY.typeable)


def test_a_noun_has_two_forms_that_no_other_noun_has():
    assert len(NOUN_OF) == 2 * len(w.NOUNS)


def test_states_and_acts_belong_to_one_class():
    for table in (w.STATES, w.ACTS, {noun: (sound,) for noun, sound in w.SOUNDS.items()}):
        told = [word for row in table.values() for word in row]
        assert len(set(told)) == len(told)


def test_the_same_seed_gives_the_same_sentences_and_another_seed_others():
    assert sentences(50, 3) == sentences(50, 3)
    assert sentences(50, 3) != sentences(50, 4)


def test_the_kinds_come_in_their_shares(drawn):
    lists = sum(is_list(words) for words in drawn)
    links = sum(not is_list(words) and ("because" in words or words.count(".") == 2) for words in drawn)
    assert lists / len(drawn) == pytest.approx(SHARES["list"], abs=0.02)
    assert links / len(drawn) == pytest.approx(SHARES["coreference"], abs=0.02)
    assert max(len(words) for words in drawn) == 2 * LIST_LENGTHS[-1]


def test_rare_nouns_are_a_twelfth_as_frequent(drawn):
    counts = Counter(noun.singular for words in drawn if not is_list(words) for noun, _ in nouns_in(words))
    rare = [counts[noun.singular] for noun in w.NOUNS if noun.rare]
    common = [counts[noun.singular] for noun in w.NOUNS if not noun.rare]
    assert len(rare) == 7
    assert (sum(rare) / len(rare)) / (sum(common) / len(common)) == pytest.approx(1 / 12, rel=0.25)


def test_the_verb_decides_the_pronoun_and_the_antecedent_decides_what_follows(drawn):
    subject_verbs, object_verbs = dict(w.SUBJECT_VERBS), dict(w.OBJECT_VERBS)
    checked = 0
    for words in drawn:
        pronouns = [i for i, word in enumerate(words) if word in w.REFLEXIVES]
        if is_list(words) or not pronouns:
            continue
        verb = next(word for word in words if word in subject_verbs or word in object_verbs)
        noun, many = nouns_in(words)[0 if verb in subject_verbs else 1]
        pronoun, after = words[pronouns[0]], words[pronouns[0] + 1]
        assert pronoun == noun.pronoun(many)
        if after in w.WERE:
            assert after == w.WERE[many]
            assert words[pronouns[0] + 2] in w.states(noun)
        else:
            assert after in w.acts(noun)
        checked += 1
    assert checked > 2_000


def test_verbs_and_reflexives_agree_with_the_subject(drawn):
    numbers = {form: many for pair in (*w.PLAIN_VERBS, *w.SELF_VERBS, w.BE) for many, form in enumerate(pair)}
    checked = 0
    for words in drawn:
        nouns, verbs = nouns_in(words), [word for word in words if word in numbers]
        if is_list(words) or len(nouns) != 2 or not verbs:
            continue
        noun, many = nouns[1 if words[0] in w.PLACES else 0]
        assert numbers[verbs[-1]] == many
        assert [word for word in words if word in w.REFLEXIVES.values()] in ([], [w.REFLEXIVES[noun.pronoun(many)]])
        checked += 1
    assert checked > 1_500


@pytest.mark.parametrize("name", SETS)
def test_a_probe_set_gives_position_no_chance(name):
    probe_set = SETS[name]()
    assert len(probe_set) == 600
    assert sum(probe.right_first for probe in probe_set) == 300
    for first in (True, False):
        meant = Counter(p.words[p.right - 1] for p in probe_set if p.right_first == first)
        other = Counter(p.words[p.wrong - 1] for p in probe_set if p.right_first == first)
        assert meant == other, "every noun is the right one as often as the wrong one, in each place"


@pytest.mark.parametrize("name", SETS)
def test_the_answer_of_every_probe_is_determined(name):
    for probe in SETS[name]():
        assert not set(probe.fitting) & set(probe.unfitting)
        assert {*probe.words, *probe.fitting, *probe.unfitting} <= set(VOCABULARY.typeable)
        assert probe.right != probe.wrong
        assert max(probe.right, probe.wrong) < probe.asked <= len(probe.words)
        assert [NOUN_OF[probe.words[row - 1]] for row in sorted((probe.right, probe.wrong))] == nouns_in(probe.words)


def test_coreference_probes_leave_it_to_the_verb():
    verbs = {verb: True for verb, _ in w.SUBJECT_VERBS} | {verb: False for verb, _ in w.OBJECT_VERBS}
    for probe in probes.coreference_probes():
        assert probe.words[probe.asked - 1 :] == ("it", "was")
        (meant, many), (other, other_many) = (NOUN_OF[probe.words[row - 1]] for row in (probe.right, probe.wrong))
        assert meant.pronoun(many) == other.pronoun(other_many) == "it"
        assert (probe.fitting, probe.unfitting) == (w.states(meant), w.states(other))
        assert [verbs[word] for word in probe.words if word in verbs] == [probe.right_first]


def test_agreement_probes_ask_at_the_adverb_and_the_other_noun_misleads():
    for probe in probes.agreement_probes():
        assert probe.words[probe.asked - 1] in w.ADVERBS
        assert NOUN_OF[probe.words[probe.right - 1]][1] != NOUN_OF[probe.words[probe.wrong - 1]][1]
        assert probe.right_first == (probe.words[0] == "the")


def test_verb_probes_go_on_to_a_verb_that_agrees_and_ask_there():
    number = {form: many for pair in probes.VERBS for many, form in enumerate(pair)}
    adverbs = 0
    for probe in probes.verb_probes():
        assert probe.asked == len(probe.words)
        assert number[probe.words[-1]] == NOUN_OF[probe.words[probe.right - 1]][1]
        assert NOUN_OF[probe.words[probe.right - 1]][1] != NOUN_OF[probe.words[probe.wrong - 1]][1]
        assert probe.right_first == (probe.words[0] == "the")
        adverbs += probe.words[-2] in w.ADVERBS
    assert adverbs / 600 == pytest.approx(0.5, abs=0.06)
    assert {probe.words[-1] for probe in probes.verb_probes()} == set(number)


def test_rare_pairs_differ_in_one_noun_of_the_same_class_and_number():
    places = Counter()
    for pair in probes.rare_pairs():
        at = pair.row - 1
        (rare, many), (common, common_many) = NOUN_OF[pair.rare[at]], NOUN_OF[pair.common[at]]
        assert (rare.rare, common.rare) == (True, False)
        assert (rare.kind, many) == (common.kind, common_many)
        assert (*pair.rare[:at], *pair.rare[at + 1 :]) == (*pair.common[:at], *pair.common[at + 1 :])
        assert len(set(nouns_in(pair.common))) == len(nouns_in(pair.rare)) == 2
        assert len(pair.rare) > pair.row, "somebody comes later to look"
        places[nouns_in(pair.rare)[0][0].rare] += 1
    assert places[True] == places[False] == 300


def test_echoing_lists_say_some_words_again_any_number_of_words_later():
    lists = probes.echoing_lists(200, length=16)
    again = [(i, i - words.index(words[i])) for words in lists for i in range(16) if words[i] in words[:i]]
    assert len(again) / (15 * 200) == pytest.approx(probes.ECHO, abs=0.03)
    assert {distance for _, distance in again} == set(range(1, 16))
    assert {len(words) for words in lists} == {16}


def test_a_balanced_set_comes_in_fours():
    assert len(probes.coreference_probes(8)) == 8
    with pytest.raises(ValueError, match="6 is no multiple of 4"):
        probes.coreference_probes(6)


def test_lists_say_different_words_twice_and_salads_have_no_order():
    for words in probes.repeated_lists(40):
        assert is_list(words)
        assert len(set(words)) == probes.REPEATED_LENGTH
    assert {len(words) // 2 for words in probes.repeated_lists(200, length=None)} == set(LIST_LENGTHS)
    assert {len(words) for words in probes.word_salad(40)} == {probes.SALAD_LENGTH}
    assert not any(set(words) & set(SPECIAL) for words in probes.word_salad(40))
