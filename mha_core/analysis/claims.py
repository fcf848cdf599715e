"""Four claims that are told about heads, measured and kept: ``python -m mha_core.analysis.claims``.

Each compares what our core computes with the same thing written anew in numpy, in float64, on random weights and
random inputs: no training is behind any figure here. What holds exactly shows as a difference of rounding, about
1e-15; what is false shows by how much.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from mha_core.analysis import claim_measures as m
from mha_core.analysis.claim_values import INPUT_SPREAD, Claims, Parameters, Spread
from mha_core.zoo.jsons import build, rounded

PATH = Path(__file__).with_name("claims.json")
FIX = "run `make evidence` to make it again"
# In float64 the two ways to one number compared here differ by far less (about 1e-15); any more is a difference.
ROUNDING = 1e-12
LINE = 110


class ClaimsError(Exception):
    """Raised for stored figures that cannot be used; the message names the file and what to do."""


def measure() -> Claims:
    """All four claims; a second or two on one core."""
    figures = m.parameters(), m.one_softmax(), m.expanded(), m.counterexample(), m.head_sums(), m.reshapes()
    # A build for another device only adds its name to the version.
    version = torch.__version__.split("+")[0]
    return Claims(version, m.SEEDS, INPUT_SPREAD, m.SETTINGS, *figures)


def store(claims: Claims, path: Path = PATH) -> None:
    """Write the figures, three digits each; four for the counterexample, whose figure is a known number."""
    plain = asdict(claims)
    exact = rounded(plain["counterexample"], lambda value: float(f"{value:.4g}"))
    path.write_text(_text(rounded(plain, shorten) | {"counterexample": exact}) + "\n")


def shorten(value: float) -> float:
    """Three digits; a rounding error becomes the power of ten above it, which is the same on most machines."""
    if 0 < value < ROUNDING:
        return float(f"1e{math.ceil(math.log10(value))}")
    return float(f"{value:.3g}")


def _text(value: Any, indent: str = "") -> str:
    """JSON in which everything that fits on a line stands on one."""
    flat, deeper = json.dumps(value), indent + "  "
    if len(indent + flat) <= LINE:
        return flat
    if isinstance(value, dict):
        lines = [f"{deeper}{json.dumps(key)}: {_text(item, deeper)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    lines = [deeper + _text(item, deeper) for item in value]
    return "[\n" + ",\n".join(lines) + f"\n{indent}]"


def stored(path: Path = PATH) -> Claims:
    """The figures as they were measured last; raises ClaimsError for a file that cannot be read."""
    try:
        return build(Claims, json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise ClaimsError(f"{path.name} holds no figures that this version can read ({error}); {FIX}.") from error


def table(claims: Claims) -> list[tuple[str, str, str]]:
    """Every claim as (what it says, whether it holds, what was measured), for the README and the page Knobs."""
    false, true, wrong = claims.one_softmax, claims.expanded, claims.reshapes
    least = min(claims.counterexample.searched, claims.counterexample.formula)
    return [
        ("(i) 4 d² parameters for every h, where g = h", "yes", _counted_off(Parameters(claims.parameters.mha()))),
        ("(i) 2 d² + 2 d g d_k for every h and g, so g is not free", "yes", _counted_off(claims.parameters)),
        (
            "(ii) a single head with block-diagonal weights is multi-head attention",
            "no",
            f"output {_shown(false.output)} off",
        ),
        (
            "(ii) its one softmax over n keys is the normalised product of the heads' patterns",
            "yes",
            _below(false.to_product),
        ),
        (
            "(ii) its pattern is that of one of the heads",
            "no",
            f"nearest head {_shown(false.to_nearest_head)} away in some cell",
        ),
        (
            "(ii) one masked softmax over h n expanded tokens, (h n)² scores, is multi-head attention",
            "yes",
            _below(true.difference),
        ),
        ("(ii) the same without its mask", "no", f"output {_shown(true.without_mask)} off"),
        ("(ii) two whole keys, (1, 1), from one head's (a, 1 - a)", "no", f"at least {least} away"),
        (
            "(iii) the sum of z_i W_O^i is concat W_O",
            "yes",
            _below(max(claims.head_sums.head_writes, claims.head_sums.plain_loop)),
        ),
        ("(iv) a loop over heads is one big matrix and a reshape", "yes", _below(wrong.loop)),
        (
            "(iv) the reshape is a view without transpose (shape and row sums are right)",
            "no",
            f"output {_shown(wrong.view)} off",
        ),
        ("(iv) K and V shared by `tile`, not `repeat_interleave` (the same)", "no", f"output {_shown(wrong.tile)} off"),
    ]


def _counted_off(counted: Parameters) -> str:
    return f"{counted.off()} off in {len(counted.rows)} layers"


def _below(figure: float) -> str:
    """How a difference of rounding is told; a larger one is told as it is."""
    return "below 1e-12" if figure < ROUNDING else f"{figure:.2g}"


def _shown(spread: Spread) -> str:
    return f"{spread.low:.2g} to {spread.high:.2g}"


def main(path: Path = PATH) -> int:
    """Measure, store, and print what was found."""
    claims = measure()
    store(claims, path)
    for what, holds, figure in table(claims):
        print(f"{what:<92}{holds:<5}{figure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
