"""The page Heads as a person uses it: look, point, press, take away."""

import csv
import io
import json
import re

import pytest


def test_the_first_view_shows_it_looking_at_cat_with_the_score_beside_its_control(visitor):
    visitor.open("/")
    assert visitor.page.locator(".thumb").count() == 24
    first = visitor.page.locator(".lead").first.inner_text()
    assert re.search(r"“it” looks most at “cat”, (0\.9\d\d|1\.000)\.", first), first
    facts = visitor.text(".fact")
    assert any("pronoun to its noun" in fact and "chance 0.50" in fact for fact in facts)
    assert len(visitor.text(".checks li")) == 6
    assert visitor.page.locator(".checks .broken").count() == 0


def test_any_cell_is_two_clicks_away(visitor):
    visitor.open("/")
    visitor.page.click('.thumb[data-layer="0"][data-head="6"]')
    visitor.settle()
    click_cell(visitor, row=6, key=2)
    assert visitor.text(".panel h3") == ["One cell: “mat” (query 6) · “cat” (key 2)"]
    assert visitor.address().items() >= {"layer": "0", "head": "6", "row": "6", "key": "2"}.items()
    panel = visitor.page.locator(".panel").inner_text()
    for step in ("q·k =", "÷ √16 =", "softmax over 7 visible keys", "× v("):
        assert step in panel


def click_cell(visitor, row: int, key: int) -> None:
    box = visitor.page.locator(".grid").bounding_box()
    n = len(visitor.text(".rowname"))
    visitor.page.mouse.click(box["x"] + (key + 0.5) * box["width"] / n, box["y"] + (row + 0.5) * box["height"] / n)
    visitor.settle()


def test_a_cell_is_reached_by_keyboard_alone(visitor):
    visitor.open("/")
    keys = visitor.page.keyboard
    visitor.page.locator('.thumb[aria-pressed="true"]').focus()
    layer = int(visitor.address()["layer"])
    keys.press("ArrowDown")
    keys.press("Enter")
    visitor.settle()
    assert visitor.address()["layer"] == str(layer + 1)
    visitor.page.locator(".grid").focus()
    keys.press("ArrowDown")
    keys.press("ArrowLeft")
    keys.press("Enter")
    visitor.settle()
    assert visitor.address()["row"] == "9"
    assert "query 9" in visitor.page.locator(".panel h3").inner_text()


def test_a_row_is_sorted_when_its_name_is_pressed(visitor):
    visitor.open("/")
    visitor.page.get_by_role("button", name="what “tired” looks at").click()
    visitor.settle()
    weights = [float(text) for text in visitor.text(".bar .value")]
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) == pytest.approx(1.0, abs=0.01)
    assert "“tired” looks at" in visitor.text("h3")


def test_hover_speaks_without_asking_the_server(visitor):
    visitor.open("/")
    sent = len(visitor.frames_sent)
    box = visitor.page.locator(".grid").bounding_box()
    cell = box["width"] / 12
    visitor.page.mouse.move(box["x"] + 2.5 * cell, box["y"] + 4.5 * cell)
    assert re.search(r"“on” looks at “cat”: \d", visitor.page.locator(".map + .say").inner_text())
    visitor.page.mouse.move(box["x"] + 9.5 * cell, box["y"] + 5.5 * cell)
    assert "hidden by the mask" in visitor.page.locator(".map + .say").inner_text()
    visitor.page.locator(".thumb").nth(3).hover()
    assert len(visitor.frames_sent) == sent


def test_masked_cells_do_not_look_like_zeros(visitor):
    visitor.open("/?scale=linear")
    hidden, shown = visitor.page.locator(".map canvas").evaluate(
        """canvas => { const pen = canvas.getContext('2d'), cell = canvas.width / 12, size = Math.floor(cell * 0.8);
        const colours = (row, key) => new Set(new Uint32Array(
            pen.getImageData(key * cell + 1, row * cell + 1, size, size).data.buffer)).size;
        return [colours(3, 9), colours(9, 3)]; }"""
    )
    assert shown == 1
    assert hidden > 3


def test_the_scale_switch_repaints_the_maps_and_its_legend(visitor):
    visitor.open("/")
    painted = {}
    for scale, low in (("linear", "0"), ("log", "0.0001"), ("per row", "0")):
        visitor.knob("Colour scale", scale)
        painted[scale] = visitor.page.locator(".map canvas").evaluate("canvas => canvas.toDataURL()")
        assert visitor.text(".map ~ .legend .num")[0] == low
    assert len(set(painted.values())) == 3


def test_lines_light_up_and_one_head_stands_alone_without_the_server(visitor):
    visitor.open("/?view=lines", ".wires")
    sent = len(visitor.frames_sent)
    visitor.page.get_by_role("button", name="what “it” looks at").hover()
    assert "“it” looks at" in visitor.page.locator(".wires + .say").inner_text()
    visitor.page.get_by_role("toolbar").get_by_role("button", name="H5").click()
    assert visitor.page.locator('.heads button[aria-pressed="true"]').count() == 1
    assert len(visitor.frames_sent) == sent


def test_the_table_and_the_exports_hold_the_same_numbers(visitor):
    visitor.open("/?first=show")
    tools = visitor.page.locator(".map").locator("xpath=..").locator(".tools")
    tools.get_by_text("as a table").click()
    table = visitor.page.locator(".twin tbody tr").all()
    assert len(table) == 12
    rows = list(csv.reader(io.StringIO(download(visitor, tools, "CSV").decode())))
    assert rows[0][1:] == ["start", *["The", "cat", "sat", "on", "the", "mat", "because", "it", "was", "tired", "."]]
    for row in rows[1:]:
        assert sum(float(cell) for cell in row[1:] if cell) == pytest.approx(1.0, abs=1e-5)
    recipe = json.loads(download(visitor, tools, "recipe"))
    assert recipe["settings"]["d_model"] == 128
    assert recipe["shown"]["layer"] == int(visitor.address()["layer"])
    svg = download(visitor, tools, "SVG").decode()
    assert svg.startswith("<svg")
    assert ">because</text>" in svg
    assert download(visitor, tools, "PNG").startswith(b"\x89PNG")


def download(visitor, tools, kind: str) -> bytes:
    with visitor.page.expect_download() as waiting:
        tools.get_by_text(kind, exact=True).click()
    return waiting.value.path().read_bytes()


HOSTILE = '<b>x</b> & "y" <script>window.hit=1</script> $x_1$ **bold** :smile: <img src=x onerror=window.hit=1>'


def test_typed_text_stays_text_everywhere(visitor):
    visitor.open("/")
    visitor.page.get_by_label("Sentence", exact=True).fill(HOSTILE)
    visitor.page.keyboard.press("Control+Enter")
    visitor.settle()
    for view in ("lines", "compare", "map"):
        visitor.knob("View", view)
        assert visitor.page.evaluate("window.hit") is None
        assert visitor.page.locator(".root b:has-text('x'), .root img, .root script, .root strong").count() == 0
    visitor.page.locator(".map").locator("xpath=..").get_by_text("as a table").click()
    labels = visitor.text(".twin tbody th")
    assert labels[:5] == ["start", "<", "b", ">", "x"]
    assert visitor.page.get_by_label("Sentence", exact=True).input_value() == HOSTILE
    assert visitor.address()["s"] == HOSTILE


def test_nothing_that_was_typed_is_logged(visitor):
    visitor.open("/?s=xylophone+quartz")
    visitor.page.get_by_label("Sentence", exact=True).fill("zephyr jukebox")
    visitor.page.keyboard.press("Control+Enter")
    visitor.settle()
    logged = visitor.server.logged()
    assert not [word for word in ("xylophone", "quartz", "zephyr", "jukebox") if word in logged]


def test_an_unknown_word_is_replaced_only_when_asked(visitor):
    visitor.open("/?s=the+catt+sat+.")
    visitor.page.get_by_role("button", name="use “cat”", exact=True).click()
    visitor.settle()
    assert visitor.address()["s"] == "the cat sat ."


@pytest.mark.parametrize("width", [1440, 1024])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["map", "lines", "compare"])
def test_nothing_sticks_out_of_the_page(browser, server, width, scheme, view):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{server.url}/?view={view}&h=16&g=4")
    page.wait_for_selector(".thumb")
    page.wait_for_timeout(600)
    main = page.locator('[data-testid="stMain"]')
    assert main.evaluate("node => node.scrollWidth - node.clientWidth") <= 1
    ink = page.locator(".root").first.evaluate("node => getComputedStyle(node).getPropertyValue('--ink')")
    assert ink == {"light": "#1a2130", "dark": "#e9edf3"}[scheme]
    context.close()


def test_a_view_is_pinned_compared_and_let_go(visitor):
    visitor.open("/")
    visitor.page.get_by_role("button", name="Pin this view").click()
    visitor.settle()
    visitor.knob("View", "compare")
    visitor.page.get_by_role("button", name="it → they", exact=True).click()
    visitor.settle()
    titles = visitor.text("h3")
    assert any("minus pinned" in title for title in titles), titles
    visitor.page.get_by_role("button", name="Unpin").click()
    visitor.settle()
    assert "pin" not in visitor.address()
    assert not any("pinned" in title for title in visitor.text("h3"))
