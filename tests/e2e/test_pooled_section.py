"""The section "Same weights, fewer KV heads" as a person uses it: pool, pick a layer, press a head, come back."""

import re

from playwright.sync_api import expect

from tests.e2e.conftest import Visitor


def opened(visitor: Visitor, query: str = "") -> Visitor:
    """The page by its menu: the address of another page than the first makes Streamlit ask for what is not there."""
    visitor.open(f"/?{query}")
    visitor.page.get_by_role("link", name="KV cache").click()
    visitor.page.get_by_role("radio", name="same weights, fewer KV heads").click()
    visitor.page.wait_for_selector(".thumb")
    expect(visitor.page.get_by_role("heading", name="Same weights, fewer KV heads")).to_be_visible(timeout=30_000)
    return visitor.settle()


def titles(visitor: Visitor) -> list[str]:
    return [title for title in visitor.text("h3") if re.match(r"Layer \d (before|pooled)", title)]


def test_pooling_and_a_layer_are_chosen_by_mouse_and_keyboard_and_stand_in_the_address(visitor):
    opened(visitor, "d=64&h=8&g=8")
    visitor.knob("Pool g = 8 to", "1 (MQA)")
    assert titles(visitor)[1].endswith("pooled, g = 1")
    visitor.page.get_by_role("radio", name="1 (MQA)").press("ArrowLeft")
    visitor.settle()
    visitor.knob("Layer", "2")
    assert titles(visitor) == ["Layer 2 before, g = 8", "Layer 2 pooled, g = 2"]
    assert visitor.address().items() >= {"pool": "2", "layer": "2"}.items()
    row = visitor.page.get_by_role("row", name=re.compile("^pooled to g = 2"))
    expect(row).to_have_class("marked")


def test_a_head_pressed_in_one_map_is_framed_in_both_and_named_with_its_layer(visitor):
    opened(visitor, "d=64&h=8&g=8&pool=2&layer=1")
    visitor.page.get_by_role("button", name=re.compile(r"^Layer 1, head 5 \(KV head 5\)")).click()
    visitor.settle()
    pressed = visitor.page.locator('.thumb[aria-pressed="true"]')
    expect(pressed).to_have_count(2)
    assert [pressed.nth(i).get_attribute("title") for i in range(2)] == [
        "layer 1, head 5, KV head 5",
        "layer 1, head 5, KV head 1",
    ]
    assert visitor.address()["head"] == "5"
    assert visitor.text(".board .name").count("L1") == 2


def test_a_single_kv_head_leads_to_more(visitor):
    visitor.open("/?part=pooled&d=64&h=8&g=1")
    visitor.page.get_by_role("link", name="KV cache").click()
    visitor.page.get_by_role("radio", name="same weights, fewer KV heads").click()
    visitor.page.get_by_role("button", name="Show g = 8").click()
    visitor.page.wait_for_selector(".thumb")
    visitor.settle()
    assert visitor.address()["g"] == "8"
    assert titles(visitor)[1].endswith("pooled, g = 4")


def test_a_wrong_link_is_told_and_a_right_one_opens_as_it_was(visitor):
    opened(visitor, "d=64&h=8&g=8&pool=3")
    expect(visitor.page.get_by_text("pool can be 4, 2, 1. 4 is shown.")).to_be_visible()
    opened(visitor, "d=64&h=8&g=8&pool=2&layer=0&head=3")
    assert titles(visitor) == ["Layer 0 before, g = 8", "Layer 0 pooled, g = 2"]
    expect(visitor.page.get_by_text("pool can be")).to_have_count(0)
