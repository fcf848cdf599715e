"""The stages of one layer: what a cell is computed from is exactly what the table of sources says."""

import numpy as np
import pytest

from mha_core.analysis.flow import SOURCES, STAGES, WEIGHTS, cell_sum, formula_of, layer_flow, source_cells, stages_of
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.masks import CAUSAL, SlidingWindow
from mha_core.trace import STEPS
from tests.core import oracle
from tests.core.cases import numbers

D, H, G, D_K, N = 20, 6, 3, 4, 5


def flow_of(**change):
    sizes = {"d_model": D, "n_heads": H, "n_kv_heads": G, "head_dim": D_K, "rotary_base": 100.0, "mask": CAUSAL}
    layer = GroupedQueryAttention(AttentionConfig(**{**sizes, **change}, seed=3))
    x = numbers(1, N, D, seed=7).float()
    before = numbers(N, D, seed=8).float().numpy()
    return layer_flow(layer, layer.trace(x), before), layer


def test_the_table_reads_what_the_trace_says_it_reads():
    for step in STEPS:
        reads = [source.matrix for source in SOURCES[step.name] if source.matrix not in WEIGHTS]
        wanted = ["dots"] if step.name == "scores" else list(step.reads)
        assert reads == wanted, step.name
    through_dots = [source.matrix for source in SOURCES["dots"]]
    assert through_dots == list(next(step.reads for step in STEPS if step.name == "scores"))


def test_every_stage_shows_what_it_makes_and_what_that_is_computed_from():
    same = {"Q": "q", "K": "k", "V": "v", "masked": "scores"}
    for stage in STAGES[1:]:
        columns = [name for names in stage.columns for name in names]
        shown = {same.get(name, name) for name in columns} | set(columns)
        for made in stage.columns[-1]:
            for source in SOURCES[same.get(made, made)]:
                hidden_in = made in ("v", "masked") or source.matrix in ("mask", "scores")
                assert hidden_in or source.matrix in shown, (stage.name, made, source.matrix)


# How one cell is computed, written anew: matrices by name, head, row, column.
def recomputed(m, name, head, row, col):
    kv = oracle.shared_heads(H, G)[head] if name in ("dots", "z") else 0
    if name in ("q", "k", "v"):
        return m["x"][0, row] @ m[f"W_{name.upper()}"][head][:, col]
    if name in ("q_rot", "k_rot"):
        half, vector = D_K // 2, m[name[0]][head, row]
        number = complex(vector[col % half], vector[col % half + half])
        number *= np.exp(1j * row * 100.0 ** (-2 * (col % half) / D_K))
        return number.real if col < half else number.imag
    if name == "dots":
        return m["q_rot"][head, row] @ m["k_rot"][kv, col]
    if name == "scores":
        return m["dots"][head, row, col] / np.sqrt(D_K)
    if name == "pattern":
        return oracle.softmax_row(m["scores"][head, row], [bool(seen) for seen in m["mask"][0, row]])[col]
    if name == "z":
        return m["pattern"][head, row] @ m["v"][kv][:, col]
    if name == "concat":
        return m["z"][head, row, col]
    if name == "out":
        return sum(m["concat"][i, row] @ m["W_O"][i][:, col] for i in range(H))
    assert name == "after"
    return m["before"][0, row, col] + m["out"][0, row, col]


COMPUTED = [name for name, sources in SOURCES.items() if sources]


def some_cells(flow, name, count=12):
    heads, rows, cols = flow.matrices(name).shape
    picks = np.random.default_rng(sum(map(ord, name)))
    return [tuple(int(picks.integers(size)) for size in (heads, rows, cols)) for _ in range(count)]


@pytest.mark.parametrize("name", COMPUTED)
def test_a_cell_can_be_computed_from_its_sources_alone(name):
    flow, _ = flow_of()
    for cell in some_cells(flow, name):
        kept = {}
        for matrix, head, rows, cols in source_cells(flow, name, *cell):
            whole = flow.matrices(matrix).astype(np.float64)
            kept.setdefault(matrix, np.full_like(whole, np.nan))[head, rows, cols] = whole[head, rows, cols]
        assert recomputed(kept, name, *cell) == pytest.approx(flow.matrices(name)[cell], abs=3e-6)


@pytest.mark.parametrize("name", [name for name in COMPUTED if name != "pattern"])
def test_a_cell_needs_each_of_its_sources(name):
    flow, _ = flow_of()
    for cell in some_cells(flow, name, 4):
        entries = source_cells(flow, name, *cell)
        for matrix, head, rows, cols in entries:
            broken = {other: flow.matrices(other).astype(np.float64) for other, *_ in entries}
            broken[matrix][head, rows, cols] = np.nan
            assert np.isnan(recomputed(broken, name, *cell)), (name, matrix)


@pytest.mark.parametrize("name", [name for name in COMPUTED if name != "concat"])
def test_the_sum_behind_a_cell_gives_the_cell(name):
    flow, _ = flow_of(mask=SlidingWindow(3))
    for cell in some_cells(flow, name):
        found = cell_sum(flow, name, *cell)
        assert found.value == flow.matrices(name)[cell]
        if name == "pattern":
            np.testing.assert_allclose(
                oracle.softmax_row(found.first, [True] * len(found.first)), found.second, atol=1e-6
            )
            assert found.value in (*found.second, 0.0)
        else:
            assert found.first.astype(float) @ found.second.astype(float) == pytest.approx(found.value, abs=3e-6)


def test_slices_laid_side_by_side_are_the_projections():
    flow, layer = flow_of()
    for name, axis in (("W_Q", 1), ("W_K", 1), ("W_V", 1), ("W_O", 0)):
        weight = getattr(layer, name).weight.detach().numpy().T
        np.testing.assert_array_equal(np.concatenate(list(flow.matrices(name)), axis=axis), weight)


def test_concat_is_z_laid_side_by_side():
    flow, _ = flow_of()
    np.testing.assert_array_equal(flow.matrices("concat"), flow.matrices("z"))


def test_what_was_there_plus_what_is_written_is_what_stands_after():
    flow, _ = flow_of()
    np.testing.assert_array_equal(flow.after, flow.before + flow.matrices("out")[0])


def test_without_rotary_positions_there_is_nothing_to_turn():
    names = [[stage.name for stage in stages_of(flow_of(rotary_base=base)[0])] for base in (100.0, None)]
    assert [name for name in names[0] if name != "rotary"] == names[1]
    assert flow_of(rotary_base=None)[0].angles is None


def test_formulas_are_those_of_the_trace():
    written = {step.formula for step in STEPS}
    for stage in STAGES:
        for text in formula_of(stage):
            cut = stage.name in ("scores", "+ residual")
            assert text in written or (cut and (stage.name == "+ residual" or any(f.startswith(text) for f in written)))
