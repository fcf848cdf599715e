"""Train every setting of the knobs, and a slice of them with more seeds: ``python -m mha_core.training.grid``.

It is resumable: what has a card, or a line in the file of seeds, is not trained again. The seeds of the slice leave
their figures and no weights: they are there to show how much a figure depends on chance.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mha_core.config import divisors
from mha_core.zoo import FOLDER, SeedRun, add_seed_run, load_card, model_name, seed_runs

WIDTHS = (32, 64, 128)
HEADS = (1, 2, 4, 8, 16)
SLICE_WIDTH = 64
SLICE = ((1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (8, 4), (8, 2), (8, 1))
MORE_SEEDS = (1, 2)


@dataclass(frozen=True)
class Job:
    """One model to train. kept: its weights and card go to the zoo; else only its figures are written down."""

    d_model: int
    n_heads: int
    n_kv_heads: int
    seed: int
    kept: bool

    @property
    def title(self) -> str:
        """The job in a few words."""
        return f"d_model {self.d_model}, h {self.n_heads}, g {self.n_kv_heads}, seed {self.seed}"


def jobs() -> list[Job]:
    """Every setting of the grid, narrow widths first, 15 per width; then the slice with its other seeds."""
    grid = [Job(d_model, h, g, 0, kept=True) for d_model in WIDTHS for h in HEADS for g in divisors(h)]
    return [*grid, *(Job(SLICE_WIDTH, h, g, seed, kept=False) for seed in MORE_SEEDS for h, g in SLICE)]


def missing(folder: Path) -> list[Job]:
    """The jobs that have left nothing in ``folder`` yet."""
    done = {(run.d_model, run.n_heads, run.n_kv_heads, run.seed) for run in seed_runs(folder)}

    def is_done(job: Job) -> bool:
        sizes = (job.d_model, job.n_heads, job.n_kv_heads)
        return (folder / f"{model_name(*sizes)}.json").exists() if job.kept else (*sizes, job.seed) in done

    return [job for job in jobs() if not is_done(job)]


def train(job: Job, out: Path) -> int:
    """Train one model in a process of its own and say how it ended; returns that process's exit code."""
    knobs = [f"--d-model={job.d_model}", f"--heads={job.n_heads}", f"--kv-heads={job.n_kv_heads}", f"--seed={job.seed}"]
    with TemporaryDirectory() as scratch:
        folder = out if job.kept else Path(scratch)
        command = [sys.executable, "-m", "mha_core.training", *knobs, f"--out={folder}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0 and not job.kept:
            figures = load_card(model_name(job.d_model, job.n_heads, job.n_kv_heads), folder).figures
            run = SeedRun(job.d_model, job.n_heads, job.n_kv_heads, job.seed, figures.tasks, figures.gates())
            add_seed_run(run, out)
    *_, last = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["no output"]
    print(f"{job.title}: {last}", flush=True)
    return done.returncode


def main() -> int:
    """Train what is missing, ``--processes`` at a time, each on one thread; returns 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m mha_core.training.grid", description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    todo = missing(options.out)
    print(f"{len(jobs()) - len(todo)} of {len(jobs())} models are trained", flush=True)
    with ThreadPoolExecutor(options.processes) as pool:
        return int(any(pool.map(lambda job: train(job, options.out), todo)))


if __name__ == "__main__":
    sys.exit(main())
