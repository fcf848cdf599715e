"""Find a Chromium for the browser tests, or install one; exit 1 with one sentence when there is none to be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def main() -> int:
    """Report the browser that the tests will use."""
    found = chromium() or _from_apt() or _from_playwright()
    if found is None:
        print(
            "No Chromium was found and none could be installed: install Debian's package chromium, or set "
            "HEADROOM_CHROMIUM to a Chromium or Chrome binary, then run this again.",
            file=sys.stderr,
        )
        return 1
    print(f"browser tests use {found}")
    return 0


def chromium() -> str | None:
    """The path of an installed Chromium: HEADROOM_CHROMIUM, one on the PATH, or Playwright's own."""
    named = os.environ.get("HEADROOM_CHROMIUM")
    if named is not None:
        return shutil.which(named)
    return next((path for name in NAMES if (path := shutil.which(name))), None) or _playwrights_own()


def _playwrights_own() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.path.exists(path) else None


def _from_apt() -> str | None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "chromium"]):
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode != 0:
            return None
    return chromium()


def _from_playwright() -> str | None:
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return _playwrights_own() if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
