"""The app at work: server time of a rerun, and from a press to paint in real Chromium.

``python -m bench.pages --json FILE`` starts its own server on loopback, opens it in Chromium, and prints a table.
The figures depend on the machine; they are reported here and asserted nowhere.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Browser, Page, sync_playwright
from streamlit.runtime.scriptrunner import script_runner
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from mha_core import zoo
from mha_core.training import words as nouns
from mha_view.cards import cards
from mha_view.state import widget_key
from pages import PAGES
from scripts.find_chromium import chromium
from scripts.serving import FLAGS, serving

ROUNDS = 12
# What a page is opened with where its default is not the dear case: four models compared.
OPENED = {"kv-cache": {"model": "gemma3-27b-nested-no-pattern", "others": "llama-3.1-8b~deepseek-v3~qwen3-235b-a22b"}}
# Streamlit's function that runs one script from end to end.
RUNS_A_SCRIPT = "exec_func_with_error_handling"
NOUNS = [noun.singular for noun in nouns.NOUNS if not noun.rare][:ROUNDS]
WORDS_128 = "+".join(["the", "cat", "sat", "on"] * 31 + ["the", "cat", "."])
WORDS_64 = "+".join(["the", "cat", "sat", "on"] * 15 + ["the", "cat", "."])

# Resolves with the milliseconds from the next press to two frames after the part was drawn anew.
AWAIT_PAINT = """(part) => new Promise(resolve => {
  let pressed = null;
  const start = () => { pressed = pressed ?? performance.now(); };
  for (const kind of ['pointerdown', 'keydown']) addEventListener(kind, start, { capture: true, once: true });
  const host = [...document.querySelectorAll('*')].find(n => n.shadowRoot?.querySelector(part));
  const observer = new MutationObserver(() => {
    if (pressed === null || !host.shadowRoot.querySelector(part)) return;
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - pressed)));
  });
  observer.observe(host.shadowRoot.querySelector('.root'), { childList: true });
})"""


def main() -> None:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # AppTest runs pages outside of a server, and Streamlit says so once a rerun.
    logging.getLogger("streamlit").setLevel(logging.ERROR)
    rows = [*server_rows(), *browser_rows()]
    for row in rows:
        print(
            f"{row['what']:<58} {row['median']:>8.1f} {row['unit']}  (quartiles {row['low']:.1f} to {row['high']:.1f})"
        )
    if options.json is not None:
        machine = {"machine": platform.machine(), "python": platform.python_version(), "torch": torch.__version__}
        options.json.write_text(json.dumps({"where": machine, "rows": rows}, indent=1) + "\n")


def server_rows() -> list[dict[str, Any]]:
    """Server time of one rerun, in this process and without a browser: script, model, trace, checks, messages.

    Timed around the script itself; the test runner that stands in for the browser waits in steps of 10 ms.
    """
    times: list[float] = []
    right = getattr(script_runner, RUNS_A_SCRIPT)

    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return right(*arguments)
        finally:
            times.append(1000 * (time.perf_counter() - start))

    setattr(script_runner, RUNS_A_SCRIPT, timed)
    app = AppTest.from_file(str(Path(__file__).parents[1] / "pages" / "_main.py"), default_timeout=60).run()

    def change(name: str, values: list[Any]) -> list[float]:
        times.clear()
        for value in values:
            app.session_state[widget_key(name)] = value
            app.run()
        return list(times)

    scales = change("scale", ["log", "row", "linear"] * 4)
    sentences = change("sentence", [f"the {noun} sat on the mat because it was tired ." for noun in NOUNS])
    app.session_state[widget_key("weights")] = "random"
    app.run()
    seeds = change("seed", list(range(1, ROUNDS + 1)))
    others = page_rows(times)
    setattr(script_runner, RUNS_A_SCRIPT, right)
    return [
        summary("Heads, rerun, colour scale (run in the cache)", scales, "ms"),
        summary("Heads, rerun, new sentence (trained, 3 x 8 heads x 12)", sentences, "ms"),
        summary("Heads, rerun, new weights (random, d 128, 3 x 8 heads x 12)", seeds, "ms"),
        *others,
        *weights_rows(),
    ]


def page_rows(times: list[float]) -> list[dict[str, Any]]:
    """Server time of a rerun of every page but the first; ``times`` is filled by whoever runs a script."""
    rows = []
    for spec in PAGES[1:]:
        app = AppTest.from_file(str(Path(__file__).parents[1] / "pages" / "_main.py"), default_timeout=60)
        app._page_hash = calc_hash(spec.slug)
        for name, value in OPENED.get(spec.slug, {}).items():
            app.query_params[name] = value
        app.run()
        for what, name, values in (
            ("colour scale (run in the cache)", "scale", ["log", "row", "linear"] * 4),
            ("new sentence", "sentence", [f"the {noun} sat on the mat because it was soft ." for noun in NOUNS]),
        ):
            times.clear()
            for value in values:
                app.session_state[widget_key(name)] = value
                app.run()
            rows.append(summary(f"{spec.title}, rerun, {what}", list(times), "ms"))
    return rows


def weights_rows() -> list[dict[str, Any]]:
    """First use of a weights file: read, checked against its card, and ready to run."""
    names = [card.name for card in cards() if card.recipe.d_model == 128][:ROUNDS]
    loads = [_milliseconds(lambda name=name: zoo.load(name)) for name in names]
    return [summary("first use of a weights file, d_model 128", loads, "ms")]


def flow_browser_rows(browser: Browser, url: str) -> list[dict[str, Any]]:
    """What the page Flow sends, and from the press of a step to two frames later."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    sizes = _watch_bytes(page)
    page.goto(f"{url}/flow?step=3")
    page.wait_for_selector(".board .cells", timeout=30_000)
    page.wait_for_timeout(1500)
    keys = iter(["ArrowRight", "ArrowLeft"] * ROUNDS)
    page.locator(".step[aria-current]").focus()
    times = _presses(page, ".board", lambda: page.keyboard.press(next(keys)))
    rows = [summary("Flow, step to paint, 8 heads x 12 tokens", times, "ms")]

    def sent(what: str, selector: str) -> None:
        page.wait_for_timeout(1500)
        sizes.clear()
        page.locator(selector).first.click()
        page.wait_for_timeout(2000)
        rows.append(summary(what, [sum(sizes) / 1e3], "kB"))

    sent("Flow, a new sentence, sent", '[data-focus="example-looked for"]')
    sent("Flow, a step, sent", '.step[data-step="5"]')
    sent("Flow, the first stage with weights, sent", '.step[data-step="1"]')
    sent("Flow, the next stage with weights, sent", '.step[data-step="10"]')
    page.close()
    return rows


def browser_rows() -> list[dict[str, Any]]:
    """From press to paint, and the first view of a new browser on a running server."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS.split())
        first, weight = [], []
        for _ in range(4):
            page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
            sizes = _watch_bytes(page)
            first.append(_milliseconds(lambda page=page: _open(page, f"{server.url}/")))
            weight.append(sum(sizes) / 1e6)
            page.context.close()
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        rows = [summary("first view, new browser, running server", first, "ms")]
        rows.append(summary("first view, websocket part", weight, "MB"))
        for name, query, part in (
            ("slider to paint, 8 heads x 12 tokens", "weights=random&d=64&h=8&g=8", ".thumb"),
            ("slider to paint, 16 heads x 64 tokens", f"weights=random&d=64&h=16&g=16&s={WORDS_64}", ".thumb"),
        ):
            _open(page, f"{server.url}/?{query}")
            page.get_by_role("slider", name="Width d_model").focus()
            keys = iter(["ArrowRight", "ArrowLeft"] * ROUNDS)
            times = _presses(page, part, lambda keys=keys: page.keyboard.press(next(keys)))
            rows.append(summary(name, times, "ms"))
        page.close()
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        sizes = _watch_bytes(page)
        _open(page, f"{server.url}/?weights=random&d=192&h=12&g=12&s={WORDS_128}")
        page.wait_for_timeout(1000)
        sizes.clear()
        layers = iter([1, 2, 0] * ROUNDS)
        times = _presses(page, ".map", lambda: page.click(f'.thumb[data-layer="{next(layers)}"][data-head="3"]'))
        rows.append(summary("change of layer to paint, 12 heads x 128 tokens", times, "ms"))
        rows.append(summary("the same, sent per change", [sum(sizes) / 1e6 / (ROUNDS + 2)], "MB"))
        rows += flow_browser_rows(browser, server.url)
        browser.close()
    return rows


def summary(what: str, values: list[float], unit: str) -> dict[str, Any]:
    """Median and quartiles of one measurement."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"what": what, "median": middle, "low": low, "high": high, "n": len(values), "unit": unit}


def _presses(page: Page, part: str, press: Callable[[], None]) -> list[float]:
    """Milliseconds of ROUNDS presses, after two that warm up."""
    times = []
    for _ in range(ROUNDS + 2):
        # The promise is kept in the page and awaited after the press.
        page.evaluate(f"part => {{ window.painted = ({AWAIT_PAINT})(part); }}", part)
        press()
        times.append(page.evaluate("window.painted"))
        page.wait_for_timeout(400)
    return times[2:]


def _open(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(".thumb", timeout=30_000)


def _watch_bytes(page: Page) -> list[int]:
    sizes: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: sizes.append(len(data))))
    return sizes


def _milliseconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - start)


if __name__ == "__main__":
    main()
