"""The page Residual stream as a person uses it: press a part, follow it to other pages, choose two words."""

import csv
import io
import re

import numpy as np
import pytest

from mha_core.analysis.residual import attribution_of, residual_of
from mha_view import state
from mha_view.results import VOCABULARY
from mha_view.settings import DEFAULTS

ROW = 9
FOCUSED = """(() => {
  let node = document.activeElement;
  while (node?.shadowRoot) node = node.shadowRoot.activeElement;
  return node?.dataset.focus; })()"""


@pytest.fixture(scope="module")
def found():
    """The stream of the first view, as this process computes it."""
    return residual_of(state.cached_model(DEFAULTS).model, state.cached_run(DEFAULTS).trace, ROW)


@pytest.fixture(scope="module")
def shares(found):
    words = [VOCABULARY.words.index(word) for word in ("tired", "soft")]
    return attribution_of(state.cached_model(DEFAULTS).model, found, *words)


def opened(visitor, query=""):
    visitor.open(f"/residual{query}", ".board .spot")
    visitor.page.wait_for_selector(".board .line")
    return visitor.settle()


def detail(visitor) -> str:
    return visitor.page.locator(".detail").inner_text()


def num(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def test_a_cold_link_opens_on_a_fresh_server(browser, fresh_server):
    page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
    page.goto(f"{fresh_server.url}/residual?d=64&h=4&g=2&stage=L2H1&word=hungry&against=soft&row=9")
    page.wait_for_selector(".board .line")
    assert "layer 2, head 1" in page.locator(".detail").inner_text()
    assert "What makes “hungry” likelier than “soft” after “was”" in " ".join(page.locator(".title").all_inner_texts())
    page.context.close()


def test_the_first_view_says_what_the_core_computed(visitor, found, shares):
    opened(visitor)
    lead = visitor.page.locator(".lead").inner_text()
    assert f"“tired” to “soft” by {shares.difference:.3f} logits" in lead
    assert len(visitor.text(".check:not(.broken)")) == 3
    picture = visitor.page.locator(".board svg").first.text_content()
    for stage in found.stages:
        assert f"norm {num(stage.whole.norm)}" in picture
        word = VOCABULARY.words[stage.lens.top(1)[0]]
        assert word in picture
    bars = visitor.page.locator(".board .line").evaluate_all("nodes => nodes.map((n) => n.getAttribute('aria-label'))")
    assert len(bars) == len(shares.parts) + 1
    for bar, part, value in zip(bars, shares.parts, shares.values, strict=False):
        if part.kind == "head":
            assert bar.startswith(f"{part.name}: {'+' if value > 0 else '−'}")


def sizes(visitor, board, tags, names):
    """The drawn shapes of a picture: their attributes as numbers."""
    script = """(svg, [tags, names]) => [...svg.querySelectorAll(tags)].map(
      (node) => names.map((name) => parseFloat(node.getAttribute(name))))"""
    return visitor.page.locator(".board svg").nth(board).evaluate(script, [tags, names])


def test_lengths_and_widths_are_to_scale(visitor, found, shares):
    opened(visitor)
    heads = [part.norm for part in found.parts if part.kind == "head"]
    drawn = [tall for wide, tall in sizes(visitor, 0, "rect[rx]", ["width", "height"]) if wide > 20 and tall != 11][:24]
    np.testing.assert_allclose(np.maximum(drawn, 1), np.maximum(1, 50 * np.array(heads) / max(heads)), atol=0.06)
    joins = [width for (width,) in sizes(visitor, 0, "path[stroke-width]", ["stroke-width"])]
    norms = np.array([part.norm for part in found.parts])
    scale = joins[-1] / norms[-1]
    np.testing.assert_allclose(
        joins, np.maximum(norms * scale, [1.5 if p.head < 0 else 0.8 for p in found.parts]), atol=0.2
    )
    bars = [width for _, width in sizes(visitor, 1, "rect[rx]", ["x", "width"])]
    lengths = np.abs([*shares.values, shares.total])
    np.testing.assert_allclose(bars, np.maximum(1, lengths * bars[-1] / lengths[-1]), atol=0.2)


def test_pressing_a_part_explains_it_at_once_and_the_link_follows(visitor, found):
    opened(visitor)
    sent = len(visitor.frames_sent)
    visitor.page.locator('.spot[data-part="L1-MLP"]').click()
    part = next(part for part in found.parts if part.name == "L1 MLP")
    assert f"norm {num(part.norm)}, cosine with the stream before it {num(part.cosine)}" in detail(visitor)
    assert len(visitor.frames_sent) == sent
    visitor.page.wait_for_timeout(500)
    visitor.settle()
    assert visitor.address()["stage"] == "L1-MLP"
    visitor.page.reload()
    visitor.page.wait_for_selector(".detail")
    assert "layer 1 MLP" in detail(visitor)


@pytest.mark.parametrize(
    ("part", "there", "selector", "place"),
    [
        ("L2H5", "Open on Heads", ".thumb", {"layer": "2", "head": "5", "row": "9"}),
        ("L2H5", "Open on Flow", ".board .cells", {"layer": "2", "head": "5", "row": "9", "step": "10"}),
        ("L0-attention", "Open on Flow", ".board .cells", {"layer": "0", "row": "9", "step": "10"}),
    ],
)
def test_a_part_opens_on_another_page_at_its_place(visitor, part, there, selector, place):
    opened(visitor)
    visitor.page.locator(f'.spot[data-part="{part}"]').click()
    visitor.page.get_by_role("button", name=there).click()
    visitor.page.wait_for_selector(selector)
    visitor.settle()
    assert visitor.address().items() >= place.items()
    assert visitor.page.url.split("?")[0].endswith("/flow") is (there == "Open on Flow")


def test_a_heads_bar_opens_its_map(visitor, shares):
    opened(visitor)
    head = next(part for part in shares.parts if part.kind == "head")
    visitor.page.locator(f'.line[data-part="{head.name}"]').click()
    visitor.page.wait_for_selector(".thumb")
    visitor.settle()
    assert visitor.address().items() >= {"layer": str(head.layer), "head": str(head.head), "row": "9"}.items()


def test_the_vectors_can_be_read_number_by_number(visitor, found):
    opened(visitor, "?stage=L1H3")
    strip = visitor.page.locator(".vectors canvas").nth(1)
    strip.focus()
    visitor.page.keyboard.press("ArrowRight")
    part = next(part for part in found.parts if part.name == "L1H3")
    said = visitor.page.locator(".say").first.inner_text()
    assert said == f"layer 1, head 3 writes, dimension 1: {num(part.write[1])}"
    for place, stage in ((0, 2), (3, 3)):
        visitor.page.locator(".vectors canvas").nth(place).focus()
        assert visitor.page.locator(".say").first.inner_text().endswith(num(found.stages[stage].stream[0]))


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_a_tour_by_keyboard_alone(browser, server, motion):
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion=motion)
    page = context.new_page()
    page.goto(f"{server.url}/residual?stage=L1H3")
    page.wait_for_selector(".board .line")
    page.wait_for_timeout(600)
    keys = page.keyboard
    page.locator('[data-focus="row-9"]').focus()
    keys.press("Tab")
    assert page.evaluate(FOCUSED) == "part-L1H3"
    keys.press("ArrowRight")
    assert page.evaluate(FOCUSED) == "part-L1H4"
    keys.press("ArrowDown")
    assert page.evaluate(FOCUSED) == "part-L1-MLP"
    keys.press("ArrowUp")
    keys.press("ArrowRight")
    keys.press("Enter")
    assert "layer 1, head 0" in page.locator(".detail").inner_text()
    page.wait_for_timeout(900)
    assert page.evaluate(FOCUSED) == "part-L1H0"
    for wanted in ("open-flow", "open-heads"):
        for _ in range(12):
            keys.press("Tab")
            if page.evaluate(FOCUSED) == wanted:
                break
        assert page.evaluate(FOCUSED) == wanted
    keys.press("Enter")
    page.wait_for_selector(".thumb")
    assert "head=0" in page.url or page.wait_for_url(re.compile("head=0")) is None
    # Nothing on this page moves by itself, whatever the reader prefers.
    moving = "document.getAnimations().filter((one) => one.effect?.target?.closest?.('.root')).length"
    assert page.evaluate(moving) == 0
    context.close()


def test_words_are_searched_and_the_same_word_twice_is_told(visitor):
    opened(visitor)
    box = visitor.page.get_by_role("combobox", name=re.compile("^against|against$")).last
    box.click()
    box.fill("hung")
    visitor.page.keyboard.press("Enter")
    visitor.settle()
    assert visitor.address().items() >= {"word": "tired", "against": "hungry"}.items()
    assert "What makes “tired” likelier than “hungry” after “was”" in visitor.text(".title")
    box.click()
    box.fill("tired")
    visitor.page.keyboard.press("Enter")
    visitor.settle()
    assert any("there is no difference to split" in note for note in visitor.text(".note"))
    assert visitor.page.locator(".line").count() == 0


def test_another_token_has_its_own_stream(visitor):
    opened(visitor)
    visitor.page.get_by_role("radio", name="because").check(force=True)
    visitor.settle()
    assert visitor.address()["row"] == "7"
    assert "The stream of “because”, from its embedding to the prediction" in visitor.text(".title")
    assert "After “because”" in " ".join(visitor.text(".lead"))


EDGES = """board => Math.max(...[...board.querySelectorAll("svg text, svg path, svg rect")].map(
  (node) => node.getBoundingClientRect().right)) - board.getBoundingClientRect().right"""


# 720 is a window of 1440 at 200 % zoom.
@pytest.mark.parametrize(
    ("width", "scheme", "query"),
    [(1440, "light", ""), (1024, "dark", "h=64&weights=random"), (720, "light", ""), (720, "dark", "h=16&g=4")],
)
def test_nothing_sticks_out_of_the_page(browser, server, width, scheme, query):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{server.url}/residual?{query}")
    page.wait_for_selector(".board .line")
    page.wait_for_timeout(500)
    assert page.locator('[data-testid="stMain"]').evaluate("node => node.scrollWidth - node.clientWidth") <= 1
    for board in page.locator(".board").all():
        edges = board.evaluate(EDGES)
        assert edges <= 1
    context.close()


NO_CANVAS = "HTMLCanvasElement.prototype.getContext = () => null"
NO_SVG = "DOMParser.prototype.parseFromString = () => { throw new Error('none'); }"


@pytest.mark.parametrize("script", [NO_CANVAS, NO_SVG], ids=["no canvas", "no svg"])
def test_where_nothing_can_be_drawn_the_numbers_stand_as_a_table(visitor, found, script):
    visitor.page.add_init_script(script)
    visitor.open("/residual", ".twin")
    rows = visitor.page.locator(".twin").first.locator("tbody tr").all()
    assert len(rows) == len(found.parts) + 3
    norms = [float(row.locator("td").first.inner_text()) for row in rows]
    wholes = [part for stage in found.stages for part in ([stage.whole] if stage.parts[1:] else []) + list(stage.parts)]
    np.testing.assert_allclose(norms, [part.norm for part in wholes], atol=1e-3)


def test_the_exports_hold_the_numbers(visitor, found, shares):
    opened(visitor)
    rows = []
    for tools in visitor.page.locator(".tools").all():
        with visitor.page.expect_download() as waiting:
            tools.get_by_text("CSV", exact=True).click()
        rows.append(list(csv.reader(io.StringIO(waiting.value.path().read_text()))))
    stream, bars = rows
    assert [row[0] for row in stream[1:]] == [
        part.name for stage in found.stages for part in ([stage.whole] if stage.parts[1:] else []) + list(stage.parts)
    ]
    np.testing.assert_allclose([float(row[1]) for row in bars[1:-2]], shares.values, atol=1e-9)
    assert float(bars[-1][1]) == pytest.approx(shares.difference)
    tools = visitor.page.locator(".tools").first
    with visitor.page.expect_download() as waiting:
        tools.get_by_text("SVG", exact=True).click()
    assert "The stream of “was”" in waiting.value.path().read_text().replace("&#8220;", "“")
    tools.get_by_text("as a table").click()
    assert visitor.page.locator(".twin tbody tr").count() == len(stream) - 1


def test_typed_text_stays_text(visitor):
    opened(visitor, "?s=<b>x</b> <img src=x onerror=window.hit=1>&row=2")
    assert visitor.page.evaluate("window.hit") is None
    assert visitor.page.locator(".root img").count() == 0
    assert "“b”" in " ".join(visitor.text(".title"))


def test_two_visitors_press_on_their_own(visitor, browser):
    from tests.e2e.conftest import Visitor

    opened(visitor, "?stage=L0H1")
    other = opened(Visitor(browser.new_context().new_page(), visitor.server), "?stage=L2H2")
    visitor.page.locator('.spot[data-part="L0H3"]').click()
    other.page.locator('.spot[data-part="embedding"]').click()
    visitor.page.wait_for_timeout(700)
    assert (visitor.settle().address()["stage"], other.settle().address()["stage"]) == ("L0H3", "embedding")
    assert "layer 0, head 3" in detail(visitor)
    assert "nothing stands before it" in detail(other)
    other.page.context.close()
