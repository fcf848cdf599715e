"""The page KV cache as a person uses it: paste a config, pick a file, type a number, go by keyboard."""

import json
import re

from tests.core.kv_size.data import config_of
from tests.e2e.conftest import Visitor

GEMMA = "gemma3-27b-nested-no-pattern"
BOX = "config.json (paste it, then Ctrl+Enter)"
BIG = ".fact.main .value"


def lead(visitor: Visitor) -> str:
    return visitor.page.locator(".lead").first.inner_text()


def type_into(visitor: Visitor, label: str, text: str) -> None:
    field = visitor.page.get_by_label(label, exact=True)
    field.fill(text)
    field.press("Enter")
    visitor.settle()


def paste(visitor: Visitor, text: str) -> None:
    visitor.page.get_by_label(BOX).fill(text)
    visitor.page.get_by_label(BOX).press("Control+Enter")
    visitor.settle()


def test_a_person_pastes_gemma_3_27b_and_reads_10_41_gib_and_why_not_62(visitor):
    secret = "zebra-name-of-a-model"
    visitor.open("/kv-cache", BIG)
    visitor.knob("The cache of", "pasted config")
    paste(visitor, json.dumps({**config_of(GEMMA), "_name_or_path": secret}, indent=2))
    type_into(visitor, "Context, tokens", "131,072")
    assert visitor.text(BIG) == ["10.41 GiB"]
    assert "Not 62.00 GiB: 52 of 62 layers" in lead(visitor)
    assert visitor.page.get_by_text("Layer by layer: 10 full · 52 sliding, bounded at 1,024").count() == 1

    # The link carries the text: after a reload it stands in the box, and a page change leaves it there.
    visitor.page.reload()
    visitor.page.wait_for_selector(BIG)
    visitor.settle()
    assert visitor.text(BIG) == ["10.41 GiB"]
    assert secret in visitor.page.get_by_label(BOX).input_value()
    visitor.page.get_by_role("link", name="Heads", exact=True).click()
    visitor.page.wait_for_selector(".thumb")
    visitor.settle()
    visitor.page.get_by_role("link", name="KV cache").click()
    visitor.page.wait_for_selector(BIG)
    visitor.settle()
    assert secret in visitor.page.get_by_label(BOX).input_value()
    assert visitor.text(BIG) == ["10.41 GiB"]
    assert secret not in visitor.server.logged()
    assert visitor.address()["config"] not in visitor.server.logged()


def test_a_broken_text_gets_one_sentence_and_stays_in_the_box(visitor):
    visitor.open("/kv-cache?src=pasted", ".note")
    paste(visitor, '{"model_type": "llama", <script>')
    assert visitor.page.locator(".note.problem").count() == 1
    assert visitor.page.get_by_label(BOX).input_value() == '{"model_type": "llama", <script>'
    paste(visitor, json.dumps(config_of("llama-2-7b")))
    assert visitor.page.locator(".note.problem").count() == 0
    assert "keeps 1.00 GiB at 2,048 tokens x 1" in lead(visitor)


def test_a_picked_file_comes_into_the_box(visitor, tmp_path):
    file = tmp_path / "config.json"
    file.write_bytes(json.dumps(config_of("llama-2-7b")).encode("utf-16"))
    visitor.open("/kv-cache?src=pasted", ".note")
    visitor.page.locator('input[type="file"]').set_input_files(file)
    visitor.page.wait_for_selector(BIG)
    visitor.settle()
    assert visitor.text(BIG) == ["1.00 GiB"]
    assert json.loads(visitor.page.get_by_label(BOX).input_value())["num_hidden_layers"] == 32


def test_a_model_is_searched_and_a_number_typed_by_keyboard_alone(visitor):
    visitor.open("/kv-cache?model=llama-3.1-8b", BIG)
    box = visitor.page.get_by_role("combobox", name=re.compile("Published model"))
    box.focus()
    visitor.page.keyboard.press("Control+A")
    visitor.page.keyboard.type("opt-13b")
    visitor.page.keyboard.press("Enter")
    visitor.settle()
    assert visitor.address()["model"] == "opt-13b"
    visitor.page.get_by_label("Context, tokens", exact=True).focus()
    visitor.page.keyboard.press("Control+A")
    visitor.page.keyboard.type("2k")
    visitor.page.keyboard.press("Tab")
    visitor.settle()
    assert visitor.text(BIG) == ["1.56 GiB"]
    strip = visitor.page.get_by_role("group", name=re.compile("arrow keys read off a layer"))
    strip.focus()
    visitor.page.keyboard.press("ArrowRight")
    assert visitor.text(".say")[0].startswith("Layer 0, full: 40 MiB")


def test_the_lesson_shows_the_model_it_speaks_of(visitor):
    visitor.open("/kv-cache", BIG)
    visitor.page.get_by_role("button", name="Show DeepSeek-V3").click()
    visitor.settle()
    assert visitor.address()["model"] == "deepseek-v3"
    assert "70,272 B" in "".join(visitor.text(".fact .note"))
    assert "ctx" not in visitor.address()


def test_the_cold_link_opens_on_a_fresh_server(fresh_server, browser):
    page = browser.new_page()
    visitor = Visitor(page, fresh_server).open(f"/kv-cache?model={GEMMA}&ctx=131072&others=deepseek-v3", BIG)
    assert visitor.text(BIG) == ["10.41 GiB"]
    assert visitor.errors == []
    page.close()
