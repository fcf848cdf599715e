"""How much memory does the KV cache take?"""

from __future__ import annotations

from mha_view.panels import kv_answer, kv_charts, kv_choose, kv_fit, kv_lesson
from mha_view.panels.pooled import pooled_section
from mha_view.settings import Settings


def render(settings: Settings) -> None:
    """The answer for a model, its layers and its sum; other attention; what fits; or what sharing costs in quality."""
    now, part = kv_choose.chosen(settings), kv_choose.part()
    if part == kv_choose.POOLED:
        pooled_section(settings)
        return
    kv_choose.choose(now)
    if now.model is not None:
        kv_answer.answer(settings, now.model, now.asked)
        if now.model.size.layers_with_kv:
            kv_answer.layers(now.model, now.asked)
            kv_answer.terms(now.model, now.asked)
        kv_charts.charts(now.model, now.asked)
        kv_fit.fits(now.model, now.asked)
        kv_charts.compare(settings, now.model, now.asked)
    kv_lesson.lesson(now.defaults)
