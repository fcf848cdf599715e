"""Real Chromium against a real server. A test that cannot have a browser fails with one sentence; none is skipped."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from scripts.find_chromium import chromium
from scripts.serving import FLAGS, Server, serving


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests share one worker, so that two cores serve one browser and one server."""
    for item in items:
        if "e2e" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running
    assert "Traceback" not in running.logged()


@pytest.fixture
def fresh_server(tmp_path: Path) -> Iterator[Server]:
    """A process that nobody has opened yet: cold links meet Streamlit's old page router there."""
    with serving(tmp_path) as running:
        yield running
    assert "Traceback" not in running.logged()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        pytest.fail("no Chromium: install Debian's package chromium or set HEADROOM_CHROMIUM, then run again")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        yield opened
        opened.close()


class Visitor:
    """One browser window on the app, watched: errors in the console and requests to elsewhere are kept."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page, self.server = page, server
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.frames_sent: list[object] = []
        page.on("console", self._listen)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._watch(request.url))
        page.on("websocket", lambda socket: socket.on("framesent", lambda data: self.frames_sent.append(data)))

    def _listen(self, message: ConsoleMessage) -> None:
        # On a deep link Streamlit's front end first looks for its server beside the page, and finds none.
        if message.type == "error" and "/_stcore/" not in message.location["url"]:
            self.errors.append(message.text)

    def _watch(self, url: str) -> None:
        if not url.startswith((self.server.url, "data:", "blob:")):
            self.outside.append(url)

    def open(self, path: str = "/", selector: str = ".thumb") -> "Visitor":
        self.page.goto(self.server.url + path)
        self.page.wait_for_selector(selector, timeout=30_000)
        return self.settle()

    def settle(self) -> "Visitor":
        """Wait until the script has run and the parts have drawn."""
        self.page.wait_for_timeout(300)
        self.page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=30_000)
        self.page.wait_for_timeout(250)
        return self

    def address(self) -> dict[str, str]:
        """The address bar's parts."""
        pairs = self.page.evaluate("[...new URLSearchParams(location.search)]")
        return dict(pairs)

    def knob(self, label: str, value: str) -> None:
        """Press one segment of a control."""
        control = self.page.get_by_role("radiogroup", name=label)
        control.get_by_role("radio", name=re.compile(rf"^{re.escape(value)}(, trained)?$")).click()
        self.settle()

    def text(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()


@pytest.fixture
def visitor(browser: Browser, server: Server) -> Iterator[Visitor]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    seen = Visitor(context.new_page(), server)
    yield seen
    assert seen.errors == []
    assert seen.outside == []
    context.close()
