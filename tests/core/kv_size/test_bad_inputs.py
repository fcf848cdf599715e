"""Every bad or odd input has its right answer: a value, or one sentence that names the thing."""

import json
import random
import time

import pytest

from mha_core.kv_size import ReadError, read_config
from tests.core.kv_size.data import CASES, PLAIN, bad_bytes, bad_rows

ROWS = bad_rows()
MAX_SENTENCE = 400


def answer(source):
    """(bytes per token or None, all that is said)."""
    try:
        size = read_config(source)
    except ReadError as error:
        said = str(error)
    else:
        return size.bytes_per_token(), " ".join((*size.caveats, *size.notes))
    assert "\n" not in said
    assert len(said) <= MAX_SENTENCE
    return None, said


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_each_bad_input_has_its_answer(row):
    value, said = answer(bad_bytes(row["file"]))
    assert value in {"value": [row["bytes_per_token_bf16"]], "warn": [row["bytes_per_token_bf16"]], "error": [None],
                     "value_or_error": [row["bytes_per_token_bf16"], None]}[row["outcome"]]  # fmt: skip
    if value is None or row["outcome"] == "warn":
        for name in row["message_must_name"]:
            assert name.lower() in said.lower()


@pytest.mark.parametrize(
    "row", [row for row in ROWS if not row["file"].startswith(("08", "09"))], ids=lambda r: r["file"]
)
def test_text_and_bytes_have_the_same_answer(row):
    data = bad_bytes(row["file"])
    assert answer(data) == answer(data.decode("utf-8"))


@pytest.mark.parametrize(
    ("file", "said"),
    [("02", "comma"), ("03", "comments"), ("04", "Python"), ("05", "LlamaConfig"), ("06", "```"), ("08", "UTF-16"),
     ("17", "num_key_value_heads appears twice"), ("23", "params.json"), ("26", "GGUF"), ("41", "num_hidden_layers"),
     ("53", "some_future_arch"), ("55", "sliding_window = -1"), ("56", "sliding_window = 0"), ("58", "talker_config")],
)  # fmt: skip
def test_every_liberty_taken_is_said(file, said):
    (row,) = [row for row in ROWS if row["file"].startswith(file)]
    assert said in answer(bad_bytes(row["file"]))[1]


NEVER_A_SIZE = [True, False, "many", -1, 0, 2.5, float("nan"), float("inf"), 10**400, 10**5000, [], {}]


@pytest.mark.parametrize("value", NEVER_A_SIZE, ids=lambda value: str(type(value)))
@pytest.mark.parametrize("field", ["num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"])
def test_what_is_no_size_is_refused_by_name(field, value):
    value, said = answer({**PLAIN, field: value})
    assert value is None
    assert field in said


@pytest.mark.parametrize("field", ["num_hidden_layers", "num_attention_heads"])
def test_a_missing_field_is_named_and_nothing_assumed(field):
    config = {name: value for name, value in PLAIN.items() if name != field}
    assert answer(config)[0] is None
    assert field in answer(config)[1]
    assert answer({**PLAIN, field: None})[0] is None


NASTY = {
    "number of 5,000 digits": '{"num_hidden_layers": ' + "9" * 5000 + "}",
    "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "deep lists": "[" * 1_000_000,
    "deep lists, python": "{'a':" * 50_000,
    "five megabytes of text": json.dumps({**PLAIN, "unknown": "x" * 5_000_000}),
    "five megabytes of keys": json.dumps({**PLAIN, **{f"k{i}": i for i in range(300_000)}}),
    "five megabytes of one key": "{" + '"num_hidden_layers": 32,' * 200_000 + '"a": 1}',
    "open comments": "{" + "/*" * 2_000_000,
    "open strings": "{" + '"' * 190_001,
    "commas and spaces": "{" + (", " * 90_000),
    "backslashes": '{"' + "\\" * 5_000_001,
    "long model type": json.dumps({**PLAIN, "model_type": "x" * 5_000_000}),
    "long list": json.dumps({**PLAIN, "layer_types": ["full_attention"] * 300_000}),
    "zeros": "0" * 5_000_000,
    "quotes": "'" * 190_000,
    "fences": "```" * 1_000_000,
}


@pytest.mark.parametrize("name", NASTY)
def test_nasty_text_is_answered_in_under_a_second_and_never_echoed(name):
    began = time.process_time()
    _, said = answer(NASTY[name])
    assert time.process_time() - began < 1.0
    assert len(said) < 2 * MAX_SENTENCE


def test_text_over_the_limit_is_refused_by_its_size():
    assert "size" in answer("x" * 20_000_000)[1]


def test_no_code_in_a_text_is_run():
    assert answer("{'a': __import__('os').getcwd()}")[0] is None


def test_a_script_in_a_name_stays_text_and_control_signs_do_not_reach_a_terminal():
    said = answer({**PLAIN, "model_type": "<script>\x1b[2J\u202e\ud800"})[1]
    assert "<script>" in said
    assert said.isprintable()


SURPRISES = [
    None,
    True,
    -1,
    0,
    3,
    10**30,
    2.5,
    float("nan"),
    "",
    "x",
    "32",
    [],
    [1, 2],
    {},
    {"a": 1},
    [None],
    [[]],
    ["x"],
]


def test_configs_with_fields_swapped_for_anything_are_answered_or_refused():
    """Whatever stands in a field: a size that is not negative, or a ReadError; nothing else escapes."""
    draw = random.Random(5)
    for _ in range(400):
        config = dict(draw.choice(CASES).config)
        inner = config.get("text_config")
        if isinstance(inner, dict) and draw.random() < 0.7:
            config["text_config"] = dict(inner)
            config["text_config"][draw.choice(list(inner))] = draw.choice(SURPRISES)
        else:
            config[draw.choice(list(config))] = draw.choice(SURPRISES)
        value, said = answer(config)
        assert value is None or value >= 0, (config, said)


def test_pieces_of_a_config_are_answered_or_refused():
    text = json.dumps(CASES[0].config)
    for end in range(len(text)):
        answer(text[:end])
