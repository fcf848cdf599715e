"""The page Flow as a person uses it: step, point, follow the arithmetic, switch a head off."""

import csv
import io
import re

import numpy as np
import pytest

from mha_core import worked_example
from mha_core.analysis.flow import STAGES
from mha_view import state
from mha_view.settings import DEFAULTS
from mha_view.stages import STAGE_WORDS

TITLES = [STAGE_WORDS[stage.name].title for stage in STAGES]
ROW, KEY, HEAD = 8, 2, 3


@pytest.fixture(scope="module")
def trace():
    """The numbers of the first view: layer 1, as this process computes them."""
    return state.cached_run(DEFAULTS).layer(1)


def num(value: float) -> str:
    """A number as the page writes it."""
    text = f"{value:.1e}" if value != 0 and abs(value) < 5e-4 else f"{value:.3f}"
    return re.sub(r"e-0?", "e-", text).replace("-", "\u2212")


def opened(visitor, query=""):
    return visitor.open(f"/flow{query}", ".board .cells")


def title(visitor) -> str:
    return visitor.page.locator(".told .title").inner_text().split(". ", 1)[1]


def point(visitor, name: str, head: int, row: int, col: int, rows: int, cols: int) -> str:
    """Put the pointer on one cell and read what the page says of it."""
    cells = visitor.page.locator(f'.cells[data-name="{name}"][data-head="{head}"]')
    cells.scroll_into_view_if_needed()
    box = cells.bounding_box()
    place = box["x"] + (col + 0.5) * box["width"] / cols, box["y"] + (row + 0.5) * box["height"] / rows
    visitor.page.mouse.move(*place)
    return visitor.page.locator(".reading .say").inner_text()


def test_buttons_and_arrow_keys_step_without_the_server_and_the_link_follows(visitor):
    opened(visitor)
    assert title(visitor) == TITLES[0]
    sent = len(visitor.frames_sent)
    visitor.page.get_by_role("button", name="Next").click()
    assert title(visitor) == TITLES[1]
    visitor.settle()
    sent = len(visitor.frames_sent)
    for step in (2, 3, 4):
        visitor.page.keyboard.press("ArrowRight")
        assert title(visitor) == TITLES[step]
    visitor.page.keyboard.press("ArrowLeft")
    assert title(visitor) == TITLES[3]
    assert len(visitor.frames_sent) == sent
    visitor.page.wait_for_timeout(700)
    visitor.settle()
    assert visitor.address()["step"] == "3"
    assert title(visitor) == TITLES[3]
    visitor.page.reload()
    visitor.page.wait_for_selector(".board .cells")
    assert title(visitor) == TITLES[3]


def test_the_ends_of_the_way_are_ends(visitor):
    opened(visitor, "?step=11")
    assert visitor.page.get_by_role("button", name="Next").is_disabled()
    visitor.page.locator(".step[aria-current]").focus()
    visitor.page.keyboard.press("ArrowRight")
    assert title(visitor) == TITLES[-1]
    opened(visitor, "?step=0")
    assert visitor.page.get_by_role("button", name="Back").is_disabled()


def test_a_cold_link_opens_its_step_on_a_fresh_server(browser, fresh_server):
    page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
    page.goto(f"{fresh_server.url}/flow?step=10&d=64&h=4&g=2")
    page.wait_for_selector(".board .cells")
    assert STAGE_WORDS["W_O"].title in page.locator(".told .title").inner_text()
    page.wait_for_timeout(800)
    assert "are on their way" not in page.locator(".root > .caption").first.inner_text()
    page.context.close()


@pytest.mark.parametrize("step", [1, 6, 11])
def test_a_step_has_its_link(visitor, step):
    opened(visitor, f"?step={step}")
    assert title(visitor) == TITLES[step]
    assert visitor.address()["step"] == str(step)


def test_every_step_has_its_formula_shapes_legend_and_a_cell_that_is_read(visitor):
    opened(visitor)
    for step in range(12):
        visitor.page.locator(f'.step[data-step="{step}"]').click()
        assert title(visitor) == TITLES[step]
        assert visitor.text(".formula")
        assert re.search(r"\(.*\) = \(\d", visitor.text(".shapes")[0])
        assert "“it”" in visitor.page.locator(".reading .say").inner_text()
        assert re.search(r"\d", visitor.page.locator(".legend").first.inner_text()) or step == 1


def test_pointing_at_a_score_writes_out_its_products_with_the_digits_of_the_trace(visitor, trace):
    opened(visitor, "?step=4")
    told = point(visitor, "dots", HEAD, ROW, KEY, 12, 12)
    q, k = trace.array("q_rot")[HEAD, ROW], trace.array("k_rot")[HEAD, KEY]
    assert f"head {HEAD}, row “it”, key “cat”" in told
    shown = [tuple(f"({num(v)})" if v < 0 else num(v) for v in pair) for pair in zip(q, k, strict=True)]
    assert " + ".join(f"{a} × {b}" for a, b in shown[:4]) in told
    assert told.endswith(f"(16 products) = {num(float(trace.array('scores')[HEAD, ROW, KEY]) * 4)}")
    visitor.page.get_by_text("all 16 products").click()
    assert visitor.text(".products p") == [" + ".join(f"{a} × {b}" for a, b in shown)]


def test_pointing_at_a_weight_writes_out_the_softmax(visitor, trace):
    opened(visitor, "?step=7")
    told = point(visitor, "pattern", HEAD, ROW, KEY, 12, 12)
    scores = trace.array("scores")[HEAD, ROW, : ROW + 1]
    total = np.exp(scores - scores.max()).sum()
    assert f"= {num(float(trace.array('pattern')[HEAD, ROW, KEY]))}; {num(float(total))} is the sum over 9" in told
    assert "hidden by the mask" in point(visitor, "pattern", HEAD, 2, 9, 12, 12)


@pytest.mark.parametrize(
    ("step", "name", "drawn", "cols"),
    [
        (3, "q_rot", "q_rot", 16),
        (5, "scores", "scores", 12),
        (8, "z", "z", 16),
        (9, "z", "concat", 16),
        (2, "v", "v", 16),
    ],
)
def test_pointing_reads_the_value_of_the_trace(visitor, trace, step, name, drawn, cols):
    opened(visitor, f"?step={step}")
    value = num(float(trace.array(name)[HEAD, ROW, 5]))
    told = point(visitor, drawn, HEAD, ROW, 5, 12, cols)
    assert re.search(rf"(= |: ){re.escape(value)}(\b|;|$)", told), told


def test_the_products_of_the_projections_use_weights_that_came_when_asked_for(visitor, trace):
    opened(visitor, "?step=1")
    visitor.settle()
    layer = state.cached_model(DEFAULTS).model.attention_layers()[1]
    told = point(visitor, "Q", HEAD, ROW, 5, 12, 16)
    weight = layer.W_Q.weight.detach().numpy()[HEAD * 16 + 5]
    assert f"× {num(float(weight[0]))}".replace("× \u2212", "× (\u2212").rstrip() in told
    assert told.endswith(f"(128 products) = {num(float(trace.array('q')[HEAD, ROW, 5]))}")
    visitor.page.locator('.step[data-step="10"]').click()
    visitor.settle()
    told = point(visitor, "out", 0, ROW, 77, 12, 128)
    assert told.endswith(f"(128 products) = {num(float(trace.array('out')[ROW, 77]))}")


def test_what_a_cell_was_computed_from_lights_up(visitor):
    opened(visitor, "?step=8")
    glow = visitor.page.locator(".board canvas").nth(1)
    before = glow.evaluate("canvas => canvas.toDataURL()")
    point(visitor, "z", HEAD, ROW, 5, 12, 16)
    lit = glow.evaluate("canvas => canvas.toDataURL()")
    assert lit != before
    # The row of the weights and the column of V are clear of the veil that lies on all other cells.
    clear = """([canvas, name, head, row, col, rows, cols]) => {
      const block = canvas.parentElement.querySelector(`.cells[data-name="${name}"][data-head="${head}"]`);
      const x = block.offsetLeft + (col + 0.5) * block.offsetWidth / cols, ratio = devicePixelRatio;
      const y = block.offsetTop + (row + 0.5) * block.offsetHeight / rows;
      return canvas.getContext('2d').getImageData(x * ratio, y * ratio, 1, 1).data[3] === 255; }"""

    def is_clear(*place):
        return glow.evaluate(f"(canvas, place) => ({clear})([canvas, ...place])", list(place))

    assert is_clear("pattern", HEAD, ROW, 3, 12, 12)
    assert not is_clear("pattern", HEAD, ROW - 1, 3, 12, 12)
    assert is_clear("v", HEAD, 10, 5, 12, 16)
    assert not is_clear("v", HEAD, 10, 6, 12, 16)
    assert not is_clear("z", HEAD, 2, 2, 12, 16)


def test_a_tour_by_keyboard_alone(visitor):
    opened(visitor)
    keys = visitor.page.keyboard
    visitor.page.locator(".step[aria-current]").focus()
    for step in range(1, 9):
        keys.press("ArrowRight")
        assert title(visitor) == TITLES[step]
    visitor.page.wait_for_timeout(900)
    visitor.settle()
    for _ in range(30):
        keys.press("Tab")
        if visitor.page.evaluate(FOCUSED) == "cells-z/3":
            break
    assert visitor.page.evaluate(FOCUSED) == "cells-z/3"
    first = visitor.page.locator(".reading .say").inner_text()
    keys.press("ArrowDown")
    keys.press("ArrowLeft")
    moved = visitor.page.locator(".reading .say").inner_text()
    assert "row “was”, column 7" in moved
    assert moved != first
    keys.press("Enter")
    visitor.page.wait_for_timeout(500)
    visitor.settle()
    assert visitor.address().items() >= {"row": "9", "col": "7", "step": "8"}.items()
    assert "what “was” receives" in " ".join(visitor.text(".title"))
    keys.press("PageDown")
    assert title(visitor) == TITLES[9]


FOCUSED = """(() => {
  let node = document.activeElement;
  while (node?.shadowRoot) node = node.shadowRoot.activeElement;
  return node?.dataset.focus; })()"""
PICTURES = """async () => {
  const hosts = [...document.querySelectorAll('*')];
  const root = hosts.find((n) => n.shadowRoot?.querySelector('.board')).shadowRoot;
  const shot = () => root.querySelector('.board canvas').toDataURL();
  root.querySelector('[aria-label="Next"]').click();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const early = shot();
  await new Promise((done) => setTimeout(done, 900));
  return early === shot(); }"""


@pytest.mark.parametrize(("wish", "at_once"), [("reduce", True), ("no-preference", False)])
def test_nothing_moves_for_a_reader_who_prefers_that(browser, server, wish, at_once):
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion=wish)
    page = context.new_page()
    page.goto(f"{server.url}/flow?step=2")
    page.wait_for_selector(".board .cells")
    page.wait_for_timeout(600)
    assert page.evaluate(PICTURES) is at_once
    context.close()


# 720 is a window of 1440 at 200 % zoom.
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1024, "light"), (1024, "dark"), (720, "light")])
def test_nothing_sticks_out_of_the_page(browser, server, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{server.url}/flow?h=16&g=4&step=2")
    page.wait_for_selector(".board .cells")
    for step in range(2, 12):
        page.locator(f'.step[data-step="{step}"]').evaluate("node => node.click()")
        main = page.locator('[data-testid="stMain"]')
        assert main.evaluate("node => node.scrollWidth - node.clientWidth") <= 1
        # In one go: the weights may come and redraw the board between two questions.
        room, edge = page.locator(".board").evaluate(EDGES)
        assert edge <= room + 1, step
    context.close()


EDGES = """board => [board.clientWidth,
  Math.max(...[...board.querySelectorAll('.cells')].map((node) => node.offsetLeft + node.offsetWidth))]"""


def test_another_head_is_chosen_without_the_server_where_all_is_here(visitor, trace):
    opened(visitor, "?step=8")
    sent = len(visitor.frames_sent)
    visitor.page.get_by_role("button", name="head 5", exact=True).first.click()
    visitor.page.wait_for_timeout(100)
    assert len(visitor.frames_sent) == sent
    assert point(visitor, "z", 5, ROW, 4, 12, 16).endswith(num(float(trace.array("z")[5, ROW, 4])))
    visitor.page.wait_for_timeout(900)
    visitor.settle()
    assert visitor.address()["head"] == "5"


def test_a_head_is_switched_off_and_slices_are_swapped(visitor):
    opened(visitor)
    assert "✓ the 8 writes add up to the output" in visitor.page.locator(".check").inner_text()
    visitor.page.locator('[data-focus="off-3"]').click()
    visitor.settle()
    assert visitor.address()["without"] == "3"
    assert "without head 3: the output of “it” moves by" in visitor.page.locator(".changed").inner_text()
    visitor.page.locator('[data-focus="off-3"]').click()
    visitor.settle()
    assert visitor.page.locator(".changed").count() == 0
    visitor.page.locator('[data-focus="swap-1"]').click()
    visitor.page.locator('[data-focus="swap-6"]').click()
    visitor.settle()
    assert visitor.address().items() >= {"without": "-1", "swap": "1", "with": "6"}.items()
    told = visitor.page.locator(".changed").inner_text()
    assert "the slices of heads 1 and 6 swapped" in told
    assert told.endswith("largest change of any weight 0.")


def test_the_worked_example_is_one_click_away_and_every_cell_can_be_read(visitor):
    opened(visitor, "?step=9")
    visitor.knob("Numbers of", "worked example")
    visitor.page.wait_for_selector(".note")
    assert "constructed, not learned" in " ".join(visitor.text(".note"))
    pattern = worked_example.trace().array("pattern")
    visitor.page.locator(".step").filter(has_text="softmax").click()
    for head in range(2):
        for row in range(4):
            for col in range(4):
                told = point(visitor, "pattern", head, row, col, 4, 4)
                assert f"= {num(float(pattern[head, row, col]))};" in told
    visitor.knob("Numbers of", "your settings")
    assert title(visitor) == TITLES[0]


def test_large_matrices_are_thumbnails_and_a_press_brings_exact_numbers(visitor):
    opened(visitor, "?d=1024&h=64&g=8&weights=random&step=1&head=40&row=4")
    visitor.settle()
    assert "were sent instead of" in visitor.page.locator(".caption").first.inner_text()
    visitor.page.locator('.cells[data-name="Q"][data-head="40"]').click(position={"x": 2, "y": 12})
    visitor.settle()
    told = visitor.page.locator(".reading .say").inner_text()
    assert re.search(r"\(1024 products\) = \u2212?\d\.\d{3}$", told), told


def test_a_late_answer_to_an_older_place_never_moves_the_picture_back(visitor):
    opened(visitor, "?step=2")
    visitor.page.locator(".step[aria-current]").focus()
    for _ in range(2):
        visitor.page.keyboard.press("ArrowRight")
        visitor.page.wait_for_timeout(800)
        visitor.settle()
    assert title(visitor) == TITLES[4]
    answer = """([step, late]) => { const flow = globalThis.headroomFeeds.flow, { place } = flow;
      flow.place = { ...place, at: { ...place.at, step }, echo: place.echo - late };
      flow.wake(); }"""
    visitor.page.evaluate(answer, [3, 1])
    visitor.page.wait_for_timeout(200)
    assert title(visitor) == TITLES[4]
    visitor.page.evaluate(answer, [6, -1])
    visitor.page.wait_for_timeout(200)
    assert title(visitor) == TITLES[6]


def test_where_nothing_can_be_drawn_the_numbers_stand_as_a_table(visitor, trace):
    visitor.page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    visitor.open("/flow?step=7", ".twin")
    cells = visitor.page.locator(".twin tbody tr").nth(ROW).locator("td").all_inner_texts()
    assert float(cells[KEY]) == pytest.approx(float(trace.array("pattern")[HEAD, ROW, KEY]), abs=1e-3)


def test_the_table_and_the_exports_hold_the_numbers_of_the_trace(visitor, trace):
    opened(visitor, "?step=7")
    tools = visitor.page.locator(".tools").first
    tools.get_by_text("as a table").click()
    assert visitor.page.locator(".twin tbody tr").count() == 12
    with visitor.page.expect_download() as waiting:
        tools.get_by_text("CSV", exact=True).click()
    rows = list(csv.reader(io.StringIO(waiting.value.path().read_text())))
    numbers = np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])
    np.testing.assert_allclose(numbers, trace.array("pattern")[HEAD], atol=1e-7)
    with visitor.page.expect_download() as waiting:
        tools.get_by_text("SVG", exact=True).click()
    assert "softmax over the visible keys" in waiting.value.path().read_text()


def test_typed_text_stays_text(visitor):
    opened(visitor, "?step=7&s=<b>x</b> <img src=x onerror=window.hit=1>")
    for step in (0, 4, 9):
        visitor.page.locator(f'.step[data-step="{step}"]').click()
        visitor.page.wait_for_timeout(100)
    assert visitor.page.evaluate("window.hit") is None
    assert visitor.page.locator(".root b:has-text('x') b, .root img").count() == 0


def test_two_visitors_step_on_their_own(visitor, browser):
    from tests.e2e.conftest import Visitor

    opened(visitor, "?step=3")
    other = opened(Visitor(browser.new_context().new_page(), visitor.server), "?step=6")
    visitor.page.get_by_role("button", name="Next").click()
    other.page.get_by_role("button", name="Back").click()
    visitor.page.wait_for_timeout(900)
    assert (title(visitor), title(other)) == (TITLES[4], TITLES[5])
    assert (visitor.settle().address()["step"], other.settle().address()["step"]) == ("4", "5")
    other.page.context.close()
