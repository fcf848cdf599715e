"""The visitor's choice survives cold links, the menu, reload, Back and another machine."""

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
    visitor.open(f"/?s={'cat+' * 25_000}", ".note")
    assert visitor.text(".note") == [
        "The text has 100,000 characters and the limit is 20,000; shorten it to at most 128 words."
    ]
    assert visitor.page.get_by_label("Sentence", exact=True).input_value() == "cat " * 25_000
