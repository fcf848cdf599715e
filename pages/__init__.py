"""The one list of pages: the menu, the tests and the README's table read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PageSpec:
    """A page: its module in this folder, its address, its place in the menu, and the question it answers."""

    module: str
    slug: str
    title: str
    question: str
    about: str


PAGES = (
    PageSpec(
        "heads",
        "heads",
        "Heads",
        "What does each head look at?",
        "every head's map, one cell's arithmetic, lines, comparison",
    ),
    PageSpec(
        "flow",
        "flow",
        "Flow",
        "How does the sentence become the output?",
        "one layer stage by stage, what each cell is computed from, concat and W_O head by head, a worked example",
    ),
    PageSpec(
        "reshape",
        "reshape",
        "Reshape",
        "How does one row become h heads?",
        "memory cells of one projection, two wrong orders and what catches them, a loop timed against one product, "
        "parameters",
    ),
    PageSpec(
        "residual",
        "residual",
        "Residual stream",
        "What does each part add, and where does the prediction come from?",
        "one token's stream with every write, what would be predicted on the way, the difference of two words by part",
    ),
    PageSpec(
        "roles",
        "roles",
        "Head roles",
        "Which heads have a job, and how do we know?",
        "names that heads earned by a rule, all measures, why one sentence proves nothing",
    ),
    PageSpec(
        "pruning",
        "pruning",
        "Pruning",
        "How many heads can go?",
        "switches for every head, what the model still can without them, curves of three orders",
    ),
    PageSpec(
        "kv_cache", "kv-cache", "KV cache", "How much memory does the KV cache take?",
        "exact bytes for any config.json, term by term; other attention, what fits on a GPU, how fast it can decode",
    ),
    PageSpec(
        "knobs", "knobs", "Knobs", "What do d_model, h and g decide?",
        "loss, tasks and best heads of all trained settings against h and g, with the spread of seeds",
    ),
    PageSpec(
        "model",
        "model",
        "Model card",
        "Where do the weights come from?",
        "how these weights were trained, their measured figures, the words they know",
    ),
)  # fmt: skip
