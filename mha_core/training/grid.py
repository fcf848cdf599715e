"""Train every setting of the knobs: ``python -m mha_core.training.grid``, resumable, one file and card per setting."""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mha_core.config import divisors
from mha_core.zoo import FOLDER, model_name

WIDTHS = (32, 64, 128)
HEADS = (1, 2, 4, 8, 16)


def settings() -> list[tuple[int, int, int]]:
    """Every (d_model, h, g) of the grid, narrow widths first: 15 per width."""
    return [(d_model, h, g) for d_model in WIDTHS for h in HEADS for g in divisors(h)]


def missing(folder: Path) -> list[tuple[int, int, int]]:
    """The settings that have no card in ``folder`` yet."""
    return [sizes for sizes in settings() if not (folder / f"{model_name(*sizes)}.json").exists()]


def main() -> int:
    """Train what is missing, ``--processes`` at a time, each on one thread; returns 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m mha_core.training.grid", description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    open_settings = missing(options.out)
    print(f"{len(settings()) - len(open_settings)} of {len(settings())} settings are trained", flush=True)

    def run(sizes: tuple[int, int, int]) -> int:
        d_model, h, g = sizes
        knobs = ["--d-model", str(d_model), "--heads", str(h), "--kv-heads", str(g), "--out", str(options.out)]
        done = subprocess.run([sys.executable, "-m", "mha_core.training", *knobs], capture_output=True, text=True)
        *_, last = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["no output"]
        print(f"d_model {d_model}, h {h}, g {g}: {last}", flush=True)
        return done.returncode

    with ThreadPoolExecutor(options.processes) as pool:
        return int(any(pool.map(run, open_settings)))


if __name__ == "__main__":
    sys.exit(main())
