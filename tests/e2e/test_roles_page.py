"""The page Head roles as a person uses it: from a name to the text that shows it, and to the one where it fails."""

import pytest


def test_a_counter_text_opens_on_page_heads_where_the_head_fails(visitor):
    visitor.open("/roles", ".square")
    row = visitor.page.locator(".labels tbody tr", has_text="coreference").first
    name = row.locator("th").inner_text()
    text = row.locator(".text").nth(1)
    words, asked = " ".join(text.inner_text().split()), text.locator(".asked").inner_text()
    text.click()
    visitor.page.wait_for_selector(".thumb")
    visitor.settle()
    address = visitor.address()
    assert visitor.page.url.split("?")[0].rstrip("/") in (visitor.server.url, f"{visitor.server.url}/heads")
    assert f"L{address['layer']}H{address['head']}" == name
    assert address["s"] == words
    assert f"“{asked}” looks most at" in visitor.page.locator(".lead").first.inner_text()
    chosen = visitor.page.locator(".keyname.chosen").inner_text()
    assert chosen != visitor.page.locator(".lead").first.inner_text().split("looks most at “")[1].split("”")[0]


def test_a_head_opens_by_keyboard_in_the_text_that_shows_it_best(visitor):
    visitor.open("/roles?layer=0&head=0", ".square")
    row = visitor.page.locator(".labels tbody tr", has=visitor.page.locator("th", has_text="L1H3")).first
    best = row.locator(".text").first
    words = " ".join(best.inner_text().split())
    visitor.page.locator('.square[aria-pressed="true"]').focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        visitor.page.keyboard.press(key)
    assert visitor.page.locator(".say").first.inner_text().startswith("L1H3: coreference")
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_selector(".thumb")
    visitor.settle()
    assert visitor.address().items() >= {"layer": "1", "head": "3", "s": words}.items()
    assert visitor.page.locator('.thumb[aria-pressed="true"]').get_attribute("data-head") == "3"


def test_axes_change_in_the_browser_and_stand_in_the_link(visitor):
    visitor.open("/roles", ".point")
    visitor.page.get_by_label("across").select_option("entropy")
    visitor.settle()
    assert visitor.address()["x"] == "entropy"
    assert "mean entropy, bits" in visitor.page.locator(".plane svg").inner_html()
    before = visitor.page.locator(".point").nth(5).bounding_box()
    visitor.page.reload()
    visitor.page.wait_for_selector(".point")
    visitor.settle()
    assert visitor.page.locator(".point").nth(5).bounding_box()["x"] == pytest.approx(before["x"], abs=1)


def test_the_cold_link_opens_on_a_fresh_server(fresh_server, browser):
    page = browser.new_page()
    page.goto(f"{fresh_server.url}/roles?d=64&h=8&g=8&layer=2&head=7&x=prefix&y=rare")
    page.wait_for_selector(".square", timeout=30_000)
    assert page.locator(".square").count() == 24
    assert page.locator('.square[aria-pressed="true"]').get_attribute("aria-label").startswith("L2H7")
    page.close()
