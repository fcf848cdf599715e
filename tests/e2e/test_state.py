"""The visitor's choice survives cold links, the menu, reload, Back and another machine."""

import pytest

from mha_view.examples import EXAMPLES
from tests.e2e.conftest import Visitor


def test_a_cold_deep_link_has_menu_and_controls_and_keeps_the_choice(browser, fresh_server):
    page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
    visitor = Visitor(page, fresh_server).open("/model?d=64&h=4&g=2&s=the+dog+barked+.", 'h2:has-text("weights")')
    assert page.get_by_role("link", name="Heads").count() == 1
    assert page.get_by_label("Sentence", exact=True).input_value() == "the dog barked ."

    page.get_by_role("link", name="Heads").click()
    page.wait_for_selector(".thumb")
    visitor.settle()
    visitor.knob("KV heads g", "1")
    assert page.locator(".thumb").count() == 3 * 4

    page.reload()
    page.wait_for_selector(".thumb")
    visitor.settle()
    assert visitor.address().items() >= {"d": "64", "h": "4", "g": "1", "s": "the dog barked ."}.items()

    page.go_back()
    page.wait_for_selector('h2:has-text("weights")')
    visitor.settle()
    assert visitor.address().items() >= {"d": "64", "h": "4", "g": "1", "s": "the dog barked ."}.items()
    assert page.get_by_label("Sentence", exact=True).input_value() == "the dog barked ."
    page.context.close()


def test_the_first_page_answers_to_its_own_name_too(browser, fresh_server):
    page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
    visitor = Visitor(page, fresh_server).open("/heads?d=64&h=4&g=2")
    assert page.locator(".thumb").count() == 3 * 4
    assert page.get_by_role("dialog").count() == 0
    assert visitor.address().items() >= {"d": "64", "h": "4", "g": "2"}.items()
    page.context.close()


def test_choices_add_no_steps_to_the_history(visitor):
    visitor.open("/?d=64&h=8&g=8")
    before = visitor.page.evaluate("history.length")
    visitor.knob("Heads h", "4")
    visitor.page.click('.thumb[data-layer="2"][data-head="1"]')
    visitor.settle()
    assert visitor.page.evaluate("history.length") == before
    assert visitor.address().items() >= {"h": "4", "g": "4", "layer": "2", "head": "1"}.items()


def test_a_copied_link_gives_the_same_picture_elsewhere(visitor, browser):
    visitor.open("/?d=48&h=6&g=3&seed=5&weights=random&mask=window&window=3&scale=row")
    visitor.page.click('.thumb[data-layer="1"][data-head="4"]')
    visitor.settle()
    picture = canvas(visitor)
    address = visitor.page.evaluate("location.pathname + location.search")
    other = Visitor(browser.new_context(viewport={"width": 1440, "height": 1000}).new_page(), visitor.server)
    other.open(address)
    assert canvas(other) == picture
    other.page.context.close()


def canvas(visitor: Visitor) -> list[str]:
    """Every canvas of the page, as it is painted."""
    pictures = visitor.page.locator("canvas").evaluate_all("all => all.map(canvas => canvas.toDataURL())")
    assert pictures
    return pictures


def test_the_link_says_that_it_holds_the_sentence_and_can_leave_it_out(visitor):
    visitor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.open("/?s=the+cat+sat+.")
    button = visitor.page.get_by_role("button", name="Copy link to this view")
    button.click()
    visitor.page.get_by_text("Copied; it contains the sentence.").wait_for()
    assert "s=the+cat+sat+." in visitor.page.evaluate("navigator.clipboard.readText()")
    visitor.page.get_by_label("leave the sentence out of the link").check()
    button.click()
    visitor.page.get_by_text("Copied; without the sentence.").wait_for()
    bare = visitor.page.evaluate("navigator.clipboard.readText()")
    assert "cat" not in bare
    assert "d=128" in bare


def test_two_visitors_see_their_own(visitor, browser):
    visitor.open("/?weights=random&seed=1&d=16&h=2&g=2")
    other = Visitor(browser.new_context(viewport={"width": 1440, "height": 1000}).new_page(), visitor.server)
    other.open("/?weights=random&seed=2&d=16&h=2&g=2")
    first = canvas(visitor)
    assert canvas(other) != first
    other.knob("Mask", "full")
    visitor.knob("Colour scale", "log")
    visitor.knob("Colour scale", "linear")
    assert canvas(visitor) == first
    other.page.context.close()


def test_a_link_of_a_hundred_thousand_letters_gets_one_sentence(visitor):
    visitor.open(f"/?s={'cat+' * 25_000}", ".note[role]")
    assert visitor.text(".note[role]") == [
        "The text has 100,000 characters and the limit is 20,000; shorten it to at most 128 words."
    ]
    assert visitor.page.get_by_label("Sentence", exact=True).input_value() == "cat " * 25_000


def test_a_reset_gives_what_a_first_visitor_sees(visitor):
    first = visitor.open("/").address()
    visitor.open("/?d=8&h=2&g=1&s=the+dog+.&mask=full&seed=7&weights=random&view=lines")
    visitor.page.get_by_role("button", name="Reset to defaults").click()
    visitor.settle()
    assert visitor.address() == first
    assert visitor.page.get_by_label("Sentence", exact=True).input_value() == first["s"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_one_click_away(visitor, example):
    visitor.open("/?s=the+dog+.")
    visitor.page.get_by_role("button", name=example.name, exact=True).click()
    visitor.settle()
    assert visitor.address()["s"] == example.sentence
    assert visitor.page.get_by_text(example.notice).is_visible()


def test_the_slider_of_d_model_works_by_keyboard(visitor):
    visitor.open("/?d=64&h=8&g=8")
    slider = visitor.page.get_by_role("slider", name="Width d_model")
    slider.focus()
    visitor.page.keyboard.press("ArrowRight")
    visitor.settle()
    assert visitor.address()["d"] == "96"
    visitor.page.keyboard.press("ArrowLeft")
    visitor.settle()
    assert visitor.address()["d"] == "64"


def test_a_typed_seed_gives_other_weights(visitor):
    visitor.open("/?weights=random&d=32&h=4&g=4&seed=0")
    before = canvas(visitor)
    visitor.page.get_by_label("Seed of the random weights").fill("12")
    visitor.page.keyboard.press("Enter")
    visitor.settle()
    assert visitor.address()["seed"] == "12"
    assert canvas(visitor) != before
