"""An entry script of the tests: the section "Same weights, fewer KV heads" and nothing else of a page."""

from functools import partial

from mha_view import state
from mha_view.panels import shared
from mha_view.panels.pooled import pooled_section

settings = state.open_page("kv-cache")
shared.guarded(partial(pooled_section, settings))
shared.notices()
shared.link()
