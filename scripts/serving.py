"""Start the app in a process of its own, on a free port of loopback: for the browser tests, bench and screenshots."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Flags without which a headless Chromium asks the outside world for updates.
FLAGS = "--no-sandbox --disable-gpu --disable-background-networking --no-first-run --disable-component-update"
FLAGS += " --disable-sync --disable-quic"
START_SECONDS = 60


@dataclass
class Server:
    """A running app, and what it has logged."""

    url: str
    log: Path

    def logged(self) -> str:
        """Everything the server has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """A fresh process of the app on a port of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "server.log"
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        "app.py",
        f"--server.port={port}",
        "--server.address=127.0.0.1",
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
    try:
        _await_health(f"http://127.0.0.1:{port}/_stcore/health", process, log)
        yield Server(f"http://127.0.0.1:{port}", log)
    finally:
        process.terminate()
        process.wait(20)


def _await_health(address: str, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the app did not start: {log.read_text()[-2000:]}")
