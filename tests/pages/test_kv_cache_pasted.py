"""The page KV cache: every pasted or picked config is answered, and its words stay with its visitor."""

import json
import time

import pytest

from mha_core.kv_size import ReadError, read_config
from mha_core.kv_size.presets import preset_size
from mha_view.pasted import packed_text
from tests.core.kv_size.data import PLAIN, bad_bytes, bad_rows, config_of
from tests.pages.kv import GEMMA, LLAMA, answer, paste, picked


def test_a_pasted_config_is_answered_and_comes_back_from_its_link(open_page):
    text = json.dumps(config_of(GEMMA), indent=2)
    page = paste(open_page("kv-cache", src="pasted"), text)
    # Its own limit is the context that it is shown at.
    assert answer(page)[0] == preset_size(GEMMA).total_bytes(read_config(text).max_context or 131_072)
    link = page.link()
    assert link["config"] == packed_text(text)
    again = open_page("kv-cache", **link)
    assert again.app.text_area(key="kv_text").value == text
    assert answer(again) == answer(page)


def read(text):
    """(what the config says, "") or (None, the sentence)."""
    try:
        return read_config(text), ""
    except ReadError as error:
        return None, str(error)


@pytest.mark.parametrize("row", bad_rows(), ids=lambda row: row["file"])
def test_each_bad_config_pasted_is_a_value_or_one_sentence_and_stays_in_the_box(open_page, row):
    text = bad_bytes(row["file"]).decode("utf-8", "replace")
    start = time.perf_counter()
    page = paste(open_page("kv-cache", src="pasted"), text)
    assert time.perf_counter() - start < 20
    assert page.app.text_area(key="kv_text").value == text
    problems = [n["text"] for part in page.sent("notes") for n in part["notes"] if n["title"] == "No answer."]
    size, sentence = read(text)
    # An empty box is an invitation.
    assert problems == ([sentence] if sentence and text else [])
    if size is None:
        assert page.sent("facts", "kv_") == []
        return
    page = picked(page, "ctx", "1")
    assert answer(page)[0] == size.total_bytes(1)
    assert all(any(caveat in note for note in page.notes()) for caveat in (*size.caveats, *size.notes))


def test_a_picked_file_comes_into_the_box_and_is_let_go(open_page):
    page = open_page("kv-cache", src="pasted")
    text = json.dumps(config_of(LLAMA))
    page.app.file_uploader[0].upload("config.json", text.encode("utf-16"))
    page.run()
    assert page.app.text_area(key="kv_text").value == text
    assert answer(page)[0] == 131_072 * 131_072
    assert page.app.file_uploader[0].value is None
    # Then a file that is no text at all: one sentence, and an empty box.
    page.app.file_uploader[0].upload("model.gguf", bad_bytes("09_not_utf8_binary.json"))
    page.run()
    assert any("The file is not UTF-8 text" in note for note in page.notes())
    assert page.app.text_area(key="kv_text").value == ""
    page.app.file_uploader[0].upload("config.json", b"")
    assert any("The text is empty" in note for note in page.run().notes())


def test_a_text_too_long_for_a_link_is_answered_and_left_out(open_page):
    page = paste(open_page("kv-cache", src="pasted"), bad_bytes("19_five_megabytes.json").decode())
    assert any("a link to this view leaves it out" in note for note in page.notes())
    assert "config" not in page.link()
    assert answer(page)[0] > 0


def test_a_script_in_a_model_name_is_text_everywhere(open_page):
    name = "<script>alert(1)</script>"
    page = paste(open_page("kv-cache", src="pasted"), json.dumps({**PLAIN, "model_type": name}))
    assert any("alert(1)" in note for note in page.notes())
    for kind in ("markdown", "header", "subheader", "caption"):
        assert all("alert(1)" not in element.value for element in getattr(page.app, kind))


def test_two_visitors_with_pasted_configs_of_equal_layers_keep_their_names(open_page):
    first = paste(open_page("kv-cache", src="pasted"), json.dumps(PLAIN))
    other = paste(open_page("kv-cache", src="pasted"), json.dumps({**PLAIN, "model_type": "mistral"}))
    assert "Pasted llama" in answer(first)[1]
    assert "Pasted mistral" in answer(other)[1]
    assert "Pasted llama" in answer(first.run())[1]
    for page, kind in ((first, "llama"), (other, "mistral")):
        page = picked(page, "others", "gpt2")
        assert page.sent("table")[1]["rows"][0][0] == f"Pasted {kind}"


def test_the_words_of_one_visitors_config_never_reach_another(open_page):
    """Two unknown model types with the same layers: each sees its own name in the sum, whoever came first."""
    for kind in ("zebra-one", "zebra-two"):
        page = paste(
            open_page("kv-cache", src="pasted"), json.dumps({**PLAIN, "model_type": kind, "sliding_window": 64})
        )
        page = picked(page, "others", "pasted~gpt2")
        shown = json.dumps([page.sent(part) for part in ("table", "facts", "layers", "chart", "notes")])
        assert kind in shown
        assert {"zebra-one", "zebra-two"} - {kind} == {name for name in ("zebra-one", "zebra-two") if name not in shown}


def test_each_visitor_reads_the_fields_of_the_own_config_in_the_sum(open_page):
    renamed = {"n_layers" if name == "num_hidden_layers" else name: value for name, value in PLAIN.items()}
    for config, field in ((PLAIN, "num_hidden_layers"), (renamed, "n_layers")):
        page = paste(open_page("kv-cache", src="pasted"), json.dumps(config))
        assert f"layers: {field}" in page.sent("table")[0]["rows"][0][3]
