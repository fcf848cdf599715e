"""Train the grammar model and write it into the zoo: ``python -m mha_core.training``."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from datetime import date
from pathlib import Path

import torch

from mha_core.config import ConfigError
from mha_core.params import model_parameters
from mha_core.training.evaluate import evaluate
from mha_core.training.grammar import build_vocabulary
from mha_core.training.recipe import Recipe, train
from mha_core.training.scores import Evaluation
from mha_core.zoo import FOLDER, Card, Tried, model_name, pack, store

SAY_EVERY = 100


def main(arguments: list[str] | None = None) -> int:
    """Train, judge and store; returns 1 for knobs that do not fit together."""
    options = _parser().parse_args(arguments)
    # One thread: faster for matrices this small, and several settings can be trained side by side.
    torch.set_num_threads(1)
    recipes = [Recipe(options.d_model, options.heads, options.kv_heads, s, n_steps=options.steps) for s in options.seed]
    vocabulary = build_vocabulary()
    try:
        for recipe in recipes:
            recipe.config(len(vocabulary))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    weights, card = _best_of(recipes)
    options.out.mkdir(parents=True, exist_ok=True)
    for path in store(weights, card, options.out):
        print(f"wrote {path} ({path.stat().st_size / 1e6:.2f} MB)")
    return 0


def _parser() -> argparse.ArgumentParser:
    default = Recipe()
    parser = argparse.ArgumentParser(prog="python -m mha_core.training", description=__doc__)
    parser.add_argument("--d-model", type=int, default=default.d_model, help="width of the residual stream")
    parser.add_argument("--heads", type=int, default=default.n_heads, help="query heads h")
    parser.add_argument("--kv-heads", type=int, default=default.n_kv_heads, help="KV heads g")
    parser.add_argument("--steps", type=int, default=default.n_steps)
    parser.add_argument(
        "--seed", type=int, nargs="+", default=[default.seed], help="seeds to try, until one meets every gate"
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to; the zoo when left out")
    return parser


def _best_of(recipes: list[Recipe]) -> tuple[bytes, Card]:
    """Train until a run meets every gate; the weights and card of that run, or of the one that missed fewest."""
    runs: list[tuple[bytes, Recipe, Evaluation]] = []
    for recipe in recipes:
        runs.append(_run(recipe))
        if not runs[-1][2].gates().missed():
            break
    weights, recipe, figures = min(runs, key=lambda run: len(run[2].gates().missed()))
    card = Card(
        name=model_name(recipe.d_model, recipe.n_heads, recipe.n_kv_heads),
        recipe=recipe,
        parameters=sum(model_parameters(recipe.config(len(build_vocabulary()))).values()),
        words=build_vocabulary().words,
        sha256=hashlib.sha256(weights).hexdigest(),
        figures=figures,
        tried=tuple(Tried(r.seed, r.learning_rate, r.embedding_std, f.gates()) for _, r, f in runs),
        date=date.today().isoformat(),
        torch_version=torch.__version__,
    )
    return weights, card


def _run(recipe: Recipe) -> tuple[bytes, Recipe, Evaluation]:
    """Train once and measure what will be stored, which is rounded to half precision."""
    started = time.monotonic()

    def say(step: int, loss: float) -> None:
        if step % SAY_EVERY == 0 or step == recipe.n_steps - 1:
            print(f"step {step:>5}  loss {loss:.3f}  {time.monotonic() - started:4.0f} s", flush=True)

    print(f"d_model {recipe.d_model}, h {recipe.n_heads}, g {recipe.n_kv_heads}, seed {recipe.seed}", flush=True)
    weights, rounded = pack(train(recipe, say))
    figures = evaluate(rounded, build_vocabulary())
    gates = figures.gates()
    print(gates)
    print(f"gates missed: {', '.join(gates.missed()) or 'none'}", flush=True)
    return weights, recipe, figures


if __name__ == "__main__":
    sys.exit(main())
