"""``trace``, every step kept, against those who keep less or the same: ``python -m bench.tracing --json tracing.json``.

nn.MultiheadAttention with its weights keeps the pattern only; TransformerLens, asked for the same steps, keeps all.
Memory is the growth of the process in one trace, measured in a process of its own, against the arrays it returns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from bench import peers
from bench.timing import Runs, Seconds, as_row, interleaved, machine, ratio
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.masks import CAUSAL
from mha_core.trace import STEPS

SHAPES = ((64, 4, 4, 12), (512, 8, 8, 32), (512, 8, 2, 256), (512, 8, 8, 1024), (1024, 16, 4, 1024))
DUELS = (("trace", "mha with weights"), ("trace, rotary", "transformer-lens"))
MEMORY_SHAPE = (512, 8, 2, 2048)


@dataclass(frozen=True)
class Setting:
    """One line of the table: the layer's shape."""

    d_model: int
    n_heads: int
    n_kv_heads: int
    n_tokens: int


def contestants(setting: Setting) -> Runs:
    """Our trace and its peers, which hold the same numbers (checked)."""
    layer, plain = _layer(setting, 10_000.0), _layer(setting, None)
    x, capture = peers.transformer_lens(layer, setting.n_tokens)
    with torch.inference_mode():
        peers.check_captured(layer, x, capture)
    return {
        "trace": lambda: plain.trace(x),
        "mha with weights": peers.torch_mha(plain, x, weights=True),
        "trace, rotary": lambda: layer.trace(x),
        "transformer-lens": capture,
    }


def _layer(setting: Setting, base: float | None) -> GroupedQueryAttention:
    sizes = setting.d_model, setting.n_heads, setting.n_kv_heads
    return GroupedQueryAttention(AttentionConfig(*sizes, rotary_base=base, mask=CAUSAL)).eval()


def memory() -> dict[str, float]:
    """MiB: what a trace returns, by how much the process grew at most, and one (h, n, n) buffer; in a fresh process."""
    command = [sys.executable, "-c", "from bench import tracing; print(tracing.growth())"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def growth() -> str:
    """The measuring itself, as JSON."""
    torch.set_num_threads(1)
    setting = Setting(*MEMORY_SHAPE)
    layer, x = _layer(setting, None), torch.zeros(1, setting.n_tokens, setting.d_model)
    # Small first, so that code and buffers of the libraries are there.
    layer.trace(x[:, :64])
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _peak_kib()
    trace = layer.trace(x)
    grown = (_peak_kib() - before) / 1024
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in _tensors(trace)}
    buffer = 4 * setting.n_heads * setting.n_tokens**2
    return json.dumps({"returned": sum(storages.values()) / 2**20, "grown": grown, "buffer": buffer / 2**20})


def _peak_kib() -> int:
    """The most memory that this process has held, as Linux counts it."""
    return next(int(row.split()[1]) for row in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in row)


def _tensors(trace: object) -> list[torch.Tensor]:
    return [getattr(trace, step.name) for step in STEPS if step.name != "x"]


def line(setting: Setting, seconds: Seconds) -> str:
    """One setting as a line of a markdown table."""
    shape = f"{setting.d_model}, {setting.n_heads}, {setting.n_kv_heads}, {setting.n_tokens}"
    return f"| {shape} | {' | '.join(str(ratio(seconds, *duel)) for duel in DUELS)} |"


def main() -> None:
    """Measure every shape, print the table as it grows, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=21)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| d, h, g, n | {' | '.join(f'{a} / {b}' for a, b in DUELS)} |\n|---|---|---|")
    rows = []
    for shape in SHAPES:
        setting = Setting(*shape)
        seconds = interleaved(contestants(setting), chosen.rounds)
        print(line(setting, seconds), flush=True)
        rows.append(as_row(setting, seconds, DUELS))
    used = memory()
    print(f"memory at {MEMORY_SHAPE}: {', '.join(f'{name} {mib:.0f} MiB' for name, mib in used.items())}")
    if chosen.json is not None:
        found = {**machine(), "rounds": chosen.rounds, "rows": rows, "memory": used}
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
