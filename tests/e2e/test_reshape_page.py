"""The page Reshape as a person uses it: step, play, point, choose a token, guess, measure."""

import csv
import io
import re

import numpy as np
import pytest

from mha_core.analysis.reshape import reshape_of
from mha_view import state
from mha_view.components.memory import FOLDS
from mha_view.settings import DEFAULTS

TITLES = [fold.title for fold in FOLDS]
CELLS = '.board[data-focus="cells"]'
SLOTS = """board => [...board.querySelectorAll('.slot')].map((slot) => {
  const { x, y } = slot.getBoundingClientRect();
  const [value, told] = ['b', 'i'].map((tag) => slot.querySelector(tag).textContent);
  return { x, y, value, told, address: Number(slot.dataset.address) }; })"""
FOCUSED = """(() => {
  let node = document.activeElement;
  while (node?.shadowRoot) node = node.shadowRoot.activeElement;
  return node?.dataset.focus; })()"""


@pytest.fixture(scope="module")
def trace():
    """The numbers of the first view: layer 1, as this process computes them."""
    return state.cached_run(DEFAULTS).layer(1)


def short(value: float) -> str:
    """A number as a cell writes it."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}").replace("-", "\u2212")


def opened(visitor, query=""):
    return visitor.open(f"/reshape{query}", f"{CELLS} .slot")


def title(visitor) -> str:
    return visitor.page.locator("h3.title").first.inner_text().split(". ", 1)[1]


def said(visitor) -> str:
    return visitor.page.locator(f"{CELLS} + .say").inner_text()


def slots(visitor, board=CELLS):
    return visitor.page.locator(board).evaluate(SLOTS)


def test_a_cold_link_opens_its_step_on_a_fresh_server(browser, fresh_server):
    page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
    page.goto(f"{fresh_server.url}/reshape?fold=2&d=64&h=4&g=2&matrix=k&guess=twice")
    page.wait_for_selector(f"{CELLS} .slot")
    assert page.locator("h3.title").first.inner_text() == f"3. {TITLES[2]}"
    assert "(b, g, n, d_k) = (1, 2, 12, 16)" in page.locator(".code").first.inner_text()
    page.get_by_text("You said “twice as many”.").wait_for()
    page.context.close()


def test_buttons_and_arrow_keys_step_without_the_server_and_the_link_follows(visitor):
    opened(visitor)
    assert title(visitor) == TITLES[0]
    visitor.page.get_by_role("button", name="Next").click()
    assert title(visitor) == TITLES[1]
    visitor.page.wait_for_timeout(700)
    visitor.settle()
    sent = len(visitor.frames_sent)
    visitor.page.locator('[data-focus="fold"]').focus()
    for fold in (2, 3):
        visitor.page.keyboard.press("ArrowRight")
        assert title(visitor) == TITLES[fold]
    visitor.page.keyboard.press("ArrowRight")
    visitor.page.keyboard.press("ArrowLeft")
    assert title(visitor) == TITLES[2]
    assert len(visitor.frames_sent) == sent
    visitor.page.wait_for_timeout(700)
    visitor.settle()
    assert visitor.address()["fold"] == "2"
    visitor.page.reload()
    visitor.page.wait_for_selector(f"{CELLS} .slot")
    assert title(visitor) == TITLES[2]


@pytest.mark.parametrize("matrix", ["q", "v"])
def test_every_cell_shows_the_number_of_the_trace_and_its_address_in_every_step(visitor, trace, matrix):
    opened(visitor, f"?matrix={matrix}&row=5&head=2&from=3")
    found, array = reshape_of(trace, matrix), trace.array(matrix)
    places = [(t, i, j) for t in range(4, 8) for i in range(1, 5) for j in range(3, 7)]
    for fold in range(4):
        visitor.page.locator(f'[data-focus^="fold"][data-fold="{fold}"]').click()
        visitor.page.wait_for_timeout(1200)
        layout = found.layouts[fold]
        index = {0: lambda t, i, j: (0, t, i * 16 + j), 1: lambda t, i, j: (0, t, i, j)}
        place = index.get(fold, lambda t, i, j: (0, i, t, j))
        for slot, (t, i, j) in zip(slots(visitor), places, strict=True):
            assert slot["value"] == short(float(array[i, t, j]))
            assert slot["address"] == int(slot["told"]) == layout.address(*place(t, i, j))


def test_the_cells_stand_as_the_axes_say(visitor):
    opened(visitor, "?fold=1")
    at = {slot["address"]: (slot["x"], slot["y"]) for slot in slots(visitor)}
    # Tokens are blocks: head 1 of token 0 (16) is under head 0 (0), token 1 (128) is to the right, on the same line.
    assert at[16][1] > at[0][1] == at[128][1]
    assert at[16][0] == at[0][0] < at[128][0]
    opened(visitor, "?fold=2")
    at = {slot["address"]: (slot["x"], slot["y"]) for slot in slots(visitor)}
    # Now heads are blocks, and a token is a line of each.
    assert at[128][1] > at[0][1] == at[16][1]
    assert at[128][0] == at[0][0] < at[16][0]


def test_pointing_writes_out_the_address_from_the_strides(visitor, trace):
    opened(visitor, "?fold=2")
    visitor.page.locator(f'{CELLS} .slot[data-address="274"]').hover()
    value = f"{float(trace.array('q')[1, 2, 2]):.3f}".replace("-", "\u2212")
    assert said(visitor) == f"“cat”, head 1, column 2: {value} lies at address 1 · 16 + 2 · 128 + 2 · 1 = 274"
    assert "“The”: 128 cells in one run, 128 to 255" in visitor.page.locator(".runs").inner_text()
    visitor.page.get_by_role("button", name="Next").click()
    assert "“The”: 8 runs of 16 cells, one every 192" in visitor.page.locator(".runs").inner_text()
    assert "copied" in visitor.page.locator(".moved").inner_text()


def test_the_wrong_order_tells_whose_number_it_took(visitor, trace):
    opened(visitor)
    board = '.board[data-focus="wrong"]'
    visitor.page.locator(f'{board} .slot[data-address="208"]').hover()
    memory = reshape_of(trace, "q").memory
    value = f"{float(memory[208]):.3f}".replace("-", "\u2212")
    told = visitor.page.locator(".pair + .say").inner_text()
    assert told == (f"Read as “The”, head 1, column 0: {value}, address 208. It belongs to “The”, head 5, column 0.")
    drawn = slots(visitor, board)
    for slot in drawn:
        assert slot["value"] == short(float(memory[slot["address"]]))
    right = {slot["address"] for slot in slots(visitor, '.board[data-focus="right"]')}
    assert len(drawn) == len(right) == 64
    assert "60 of the 64 cells that are drawn hold a number that belongs elsewhere" in " ".join(
        visitor.text(".caption")
    )


def test_a_tour_by_keyboard_alone(visitor):
    opened(visitor, "?g=4")
    keys = visitor.page.keyboard

    def tab_to(focus):
        for _ in range(60):
            if visitor.page.evaluate(FOCUSED) == focus:
                return
            keys.press("Tab")
        raise AssertionError(f"{focus} cannot be reached")

    visitor.page.locator('[data-focus="fold"]').focus()
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    assert title(visitor) == TITLES[2]
    tab_to("cells")
    first = said(visitor)
    keys.press("ArrowDown")
    keys.press("ArrowRight")
    assert "“cat”, head 0, column 1" in said(visitor) != first
    keys.press("Enter")
    visitor.page.wait_for_timeout(300)
    visitor.settle()
    assert visitor.address().items() >= {"row": "2", "head": "0", "fold": "2"}.items()
    keys.press("PageDown")
    assert title(visitor) == TITLES[3]
    tab_to("wrong")
    assert "Read as" in visitor.page.locator(".pair + .say").inner_text()
    tab_to("start")
    keys.press("Enter")
    visitor.page.get_by_text("Both give the same output").wait_for(timeout=30_000)
    visitor.settle()
    tab_to("guess-none")
    keys.press("Space")
    visitor.page.get_by_text("You said “none”.").wait_for()
    visitor.settle()
    assert visitor.address()["guess"] == "none"


PLACES = """async () => {
  const root = [...document.querySelectorAll('*')].find((n) => n.shadowRoot?.querySelector('.slot')).shadowRoot;
  const slots = () => [...root.querySelectorAll('[data-focus="cells"] .slot')];
  const all = () => JSON.stringify(slots().map((slot) => slot.getBoundingClientRect()));
  root.querySelector('[aria-label="Next"]').click();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const early = all();
  await new Promise((done) => setTimeout(done, 1600));
  return early === all(); }"""


@pytest.mark.parametrize(("wish", "at_once"), [("reduce", True), ("no-preference", False)])
def test_nothing_moves_for_a_reader_who_prefers_that(browser, server, wish, at_once):
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion=wish)
    page = context.new_page()
    page.goto(f"{server.url}/reshape?fold=1")
    page.wait_for_selector(f"{CELLS} .slot")
    page.wait_for_timeout(600)
    assert page.get_by_role("button", name="Play").count() == (0 if at_once else 1)
    assert page.evaluate(PLACES) is at_once
    context.close()


def test_play_goes_through_the_steps_and_stops_at_the_last(visitor):
    opened(visitor, "?fold=2")
    visitor.page.get_by_role("button", name="Play").click()
    visitor.page.get_by_role("button", name="Pause").wait_for()
    assert title(visitor) == TITLES[3]
    visitor.page.get_by_role("button", name="Play").wait_for(timeout=5_000)
    assert title(visitor) == TITLES[3]


# 720 is a window of 1440 at 200 % zoom.
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1024, "light"), (1024, "dark"), (720, "light")])
@pytest.mark.parametrize(
    "query", ["?h=16&g=4", "?d=1024&h=64&g=8&weights=random&guess=none", "?d=16&h=8&g=1&weights=random"]
)
def test_nothing_sticks_out_of_the_page(browser, server, width, scheme, query):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{server.url}/reshape{query}")
    page.wait_for_selector(f"{CELLS} .slot")
    for fold in range(4):
        page.locator(f'[data-focus^="fold"][data-fold="{fold}"]').evaluate("node => node.click()")
        page.wait_for_timeout(150)
        main = page.locator('[data-testid="stMain"]')
        assert main.evaluate("node => node.scrollWidth - node.clientWidth") <= 1
        for room, edge in page.locator(".board").evaluate_all(EDGES):
            assert edge <= room + 1, fold
    context.close()


EDGES = """boards => boards.map((board) => [board.getBoundingClientRect().right,
  Math.max(...[...board.querySelectorAll('.slot')].map((slot) => slot.getBoundingClientRect().right))])"""


def test_another_token_is_chosen_by_a_click_and_by_its_list(visitor):
    opened(visitor)
    visitor.page.locator(f'{CELLS} .slot[data-address="384"]').click()
    visitor.settle()
    assert visitor.address()["row"] == "3"
    visitor.page.locator('[data-focus="token"]').select_option("9")
    visitor.settle()
    assert visitor.address()["row"] == "9"
    assert "“was”: 128 cells in one run, 1,152 to 1,279" in visitor.page.locator(".runs").inner_text()
    visitor.page.locator('[data-focus="head"]').select_option("7")
    visitor.settle()
    assert visitor.address()["head"] == "7"
    assert {slot["address"] for slot in slots(visitor)} >= {9 * 128 + 7 * 16 + j for j in range(4)}


def test_one_head_is_one_block_and_copies_nothing(visitor):
    opened(visitor, "?h=1&g=1&fold=3")
    assert "copies nothing" in visitor.page.locator(".text").first.inner_text()
    assert visitor.page.locator(".moved").inner_text() == "nothing moved in memory"
    assert "harmless here" in " ".join(visitor.text(".caption"))


def test_the_button_leads_to_a_setting_where_tile_is_a_mistake(visitor):
    opened(visitor)
    assert visitor.page.locator(".reads .off").count() == 0
    visitor.page.get_by_role("button", name="See tile go wrong: g = 4").click()
    visitor.settle()
    assert visitor.address()["g"] == "4"
    assert visitor.page.locator(".reads .off").count() == 6


def test_a_guess_shows_bars_and_the_table(visitor):
    opened(visitor)
    assert visitor.page.get_by_text("numel()").count() == 0
    visitor.page.get_by_role("radio", name="twice as many").click()
    visitor.settle()
    assert visitor.address()["guess"] == "twice"
    bars = visitor.page.get_by_role("group", name=re.compile("More heads"))
    assert bars.locator("text").filter(has_text="65,536").count() == 7
    bars.focus()
    visitor.page.keyboard.press("ArrowRight")
    told = "heads h 1: W_Q 16384 · W_K 16384 · W_V 16384 · W_O 16384 · together 65536"
    visitor.page.get_by_text(told).wait_for()
    visitor.page.get_by_role("button", name="Ask me again").click()
    visitor.settle()
    assert visitor.address()["guess"] == "unanswered"
    assert visitor.page.get_by_text("numel()").count() == 0


def test_a_timing_runs_and_names_the_machine(visitor):
    opened(visitor, "?time_n=64&time_d=64&time_h=4")
    visitor.page.get_by_role("button", name="Measure", exact=True).click()
    visitor.page.get_by_text("Both give the same output").wait_for(timeout=30_000)
    visitor.page.get_by_text("n = 64, d_model = 64, h = 4").wait_for()
    visitor.page.get_by_text(re.compile("^CPU, |^NVIDIA")).wait_for()
    visitor.page.get_by_role("button", name="Measure again").wait_for()


def test_where_nothing_can_be_drawn_the_numbers_stand_as_a_table(visitor, trace):
    visitor.page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    visitor.open("/reshape?fold=2", ".twin")
    rows = visitor.page.locator(".twin").first.locator("tbody tr")
    assert rows.count() == 64
    cells = rows.nth(17).locator("th, td").all_inner_texts()
    assert cells[:3] == ["The", "0", "1"]
    assert float(cells[3]) == pytest.approx(float(trace.array("q")[0, 1, 1]), abs=1e-3)
    assert cells[4:] == ["129", "17"]


def test_the_table_and_the_exports_hold_the_numbers_of_the_trace(visitor, trace):
    opened(visitor, "?fold=3")
    tools = visitor.page.locator(".tools").first
    with visitor.page.expect_download() as waiting:
        tools.get_by_text("CSV", exact=True).click()
    rows = list(csv.reader(io.StringIO(waiting.value.path().read_text())))[1:]
    array = trace.array("q")[:4, :4, :4].transpose(1, 0, 2)
    np.testing.assert_allclose([float(row[3]) for row in rows], array.ravel(), atol=1e-6)
    assert [int(row[4]) for row in rows] == [t * 128 + i * 16 + j for t in range(4) for i in range(4) for j in range(4)]
    assert [int(row[5]) for row in rows] == [i * 192 + t * 16 + j for t in range(4) for i in range(4) for j in range(4)]
    with visitor.page.expect_download() as waiting:
        tools.get_by_text("SVG", exact=True).click()
    assert "strides (1536, 192, 16, 1)" in waiting.value.path().read_text()


def test_typed_text_stays_text(visitor):
    opened(visitor, "?s=<b>x</b> <img src=x onerror=window.hit=1>")
    for fold in range(4):
        visitor.page.locator(f'[data-focus^="fold"][data-fold="{fold}"]').click()
        visitor.page.wait_for_timeout(100)
    assert visitor.page.evaluate("window.hit") is None
    assert visitor.page.locator(".root img").count() == 0


def test_two_visitors_step_on_their_own(visitor, browser):
    from tests.e2e.conftest import Visitor

    opened(visitor, "?fold=0")
    other = opened(Visitor(browser.new_context().new_page(), visitor.server), "?fold=3")
    visitor.page.get_by_role("button", name="Next").click()
    other.page.get_by_role("button", name="Back").click()
    visitor.page.wait_for_timeout(900)
    assert (title(visitor), title(other)) == (TITLES[1], TITLES[2])
    assert (visitor.settle().address()["fold"], other.settle().address()["fold"]) == ("1", "2")
    other.page.context.close()
