"""The page Pruning as a person uses it: switch by mouse and by keyboard, grow a curve, stop it, send the link on."""

import re

from playwright.sync_api import expect

from tests.e2e.conftest import Visitor

PATIENCE = 30_000
START, STOP = "Measure the greedy curve", "Stop"


def opened(visitor: Visitor, query: str = "") -> Visitor:
    """The page by its menu: the address of another page than the first makes Streamlit ask for what is not there."""
    visitor.open(f"/?{query}")
    visitor.page.get_by_role("link", name="Pruning").click()
    visitor.page.wait_for_selector(".switch")
    return visitor.settle()


def switch(visitor: Visitor, layer: int, head: int):
    return visitor.page.get_by_role("button", name=re.compile(f"^layer {layer}, head {head},"))


def next_words(visitor: Visitor) -> list[str]:
    return [fact for fact in visitor.text(".fact") if fact.startswith(("after", "the same, "))]


def test_a_head_is_switched_off_by_mouse_and_another_by_keyboard(visitor):
    opened(visitor)
    assert visitor.page.locator('.switch[aria-pressed="true"]').count() == 24
    (before,) = next_words(visitor)[:1]
    for layer, head in ((0, 4), (1, 2)):
        switch(visitor, layer, head).click()
    visitor.settle()
    assert visitor.address()["off"] == "0.4-1.2"
    words = next_words(visitor)
    assert words[0] == before
    assert words[1].startswith("the same, 2 off")
    assert words[1].split("\n")[1] != before.split("\n")[1]

    switch(visitor, 1, 2).focus()
    visitor.page.keyboard.press("ArrowRight")
    visitor.page.keyboard.press("Space")
    visitor.settle()
    assert visitor.address()["off"] == "0.4-1.2-1.3"
    expect(switch(visitor, 1, 3)).to_have_attribute("aria-pressed", "false")
    assert visitor.page.evaluate(ACTIVE) == "1.3"
    visitor.page.keyboard.press("Enter")
    visitor.settle()
    assert visitor.address()["off"] == "0.4-1.2"


# What has the focus, looked for inside the parts.
ACTIVE = """(() => {
  let found = document.activeElement;
  while (found.shadowRoot?.activeElement) found = found.shadowRoot.activeElement;
  return found.dataset.focus;
})()"""


def test_quick_presses_are_all_kept(visitor):
    opened(visitor)
    for head in range(6):
        switch(visitor, 2, head).click()
    visitor.settle()
    expect(visitor.page.locator(".switch[aria-pressed='false']")).to_have_count(6)
    assert visitor.address()["off"] == "2.0-2.1-2.2-2.3-2.4-2.5"


def test_all_off_says_what_remains_and_all_on_brings_it_back(visitor):
    opened(visitor, "d=32&h=4&g=4")
    visitor.page.get_by_role("button", name="All off").click()
    visitor.settle()
    expect(visitor.page.locator(".lead").first).to_contain_text("All 12 heads are off. What remains is")
    visitor.page.get_by_role("button", name="All on").click()
    visitor.settle()
    expect(visitor.page.locator(".lead").first).to_contain_text("All 12 heads are on.")
    assert visitor.address()["off"] == ""


def test_figures_come_by_themselves_with_their_n(visitor):
    opened(visitor, "off=0.1-2.0&d=32&h=4&g=1")
    expect(visitor.page.get_by_text("600 sentences for each figure")).to_be_visible(timeout=PATIENCE)
    facts = [fact for fact in visitor.text(".fact") if "\nall heads on" in fact]
    assert len(facts) == 6
    assert all(
        re.search(r"\n\d\.\d{3}\nall heads on \d\.\d{3}; (chance|one of four|even guess)", fact) for fact in facts
    ), facts


def test_a_curve_grows_can_be_stopped_and_is_read_off(visitor):
    opened(visitor)
    page = visitor.page
    page.get_by_role("button", name=START).click()
    expect(page.get_by_text(re.compile("Measuring:"))).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".chart svg")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name=STOP, exact=True).click()
    expect(page.get_by_text(re.compile("The curve ends at"))).to_be_visible(timeout=PATIENCE)
    visitor.settle()
    expect(page.get_by_text("What the curve says.")).to_be_visible()
    reached = page.locator(".note", has_text="The curve ends at").inner_text()
    page.wait_for_timeout(1500)
    assert page.locator(".note", has_text="The curve ends at").inner_text() == reached
    page.locator(".chart").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".chart + .say")).to_have_text(re.compile(r"^heads kept 24: greedy \d\.\d{3}$"))


def test_a_whole_curve_is_measured_once_for_all_visitors(visitor, browser):
    opened(visitor, "d=32&h=4&g=4")
    visitor.page.get_by_role("button", name=START).click()
    said = visitor.page.get_by_text(re.compile(r"[Oo]f 12 heads, this many can go"))
    expect(said).to_be_visible(timeout=PATIENCE)
    expect(visitor.page.get_by_role("button", name=STOP, exact=True)).to_have_count(0, timeout=PATIENCE)
    visitor.page.get_by_role("button", name=re.compile("Switch off the first")).last.click()
    visitor.settle()
    assert visitor.page.locator('.switch[aria-pressed="false"]').count() > 0
    assert visitor.address()["off"] != ""
    other = Visitor(browser.new_context(viewport={"width": 1440, "height": 1000}).new_page(), visitor.server)
    opened(other, "d=32&h=4&g=4")
    expect(other.page.locator(".chart svg")).to_be_visible()
    assert other.page.get_by_role("button", name=START).count() == 0
    other.page.context.close()


def test_a_cold_link_opens_with_its_heads_off(browser, fresh_server):
    page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
    visitor = Visitor(page, fresh_server).open("/pruning?d=64&h=4&g=2&off=0.3-2.1&order=importance", ".switch")
    assert page.locator('.switch[aria-pressed="false"]').count() == 2
    assert visitor.address().items() >= {"off": "0.3-2.1", "order": "importance"}.items()
    expect(page.get_by_role("radio", name="importance")).to_be_checked()
    page.context.close()
