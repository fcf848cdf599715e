"""Make the README's picture: the default view in real Chromium, on a server of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from scripts.find_chromium import chromium
from scripts.serving import FLAGS, ROOT, serving


def main() -> None:
    """Write docs/heads.png."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS.split())
        page = browser.new_page(viewport={"width": 1440, "height": 1120})
        page.goto(server.url)
        page.wait_for_selector(".checks li")
        page.wait_for_timeout(800)
        page.screenshot(path=ROOT / "docs" / "heads.png")
        browser.close()
    print("wrote docs/heads.png")


if __name__ == "__main__":
    main()
