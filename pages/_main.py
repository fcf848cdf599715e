"""The entry script: menu, shared controls, the page, and the mirror in the address bar. Runs anew for every rerun."""

from functools import partial
from importlib import import_module

import streamlit as st

from mha_view import state
from mha_view.assets import ICON, LOGO
from mha_view.panels import shared
from mha_view.sidebar import sidebar
from pages import PAGES

st.set_page_config(page_title="Headroom", page_icon=ICON, layout="wide", initial_sidebar_state="expanded")
st.logo(LOGO, size="large")


def show(spec):
    """Draw one page: its question, what the visitor should know first, and its figures."""
    settings = state.open_page(spec.slug)
    link_slot = sidebar(settings)
    st.header(spec.question)
    note_slot = st.container()
    shared.guarded(partial(import_module(f"pages.{spec.module}").render, settings))
    with note_slot:
        shared.notices()
    with link_slot:
        shared.link()


def page(spec, address, **more):
    """A page of the menu, or one that only an address opens."""
    return st.Page(partial(show, spec), title=spec.title, url_path=address, help=spec.about, **more)


first, *others = PAGES
pages = {first.slug: page(first, "", default=True), **{spec.slug: page(spec, spec.slug) for spec in others}}
# The first page lives at "/"; whoever types its name gets it too, instead of Streamlit's "Page not found".
typed = page(first, first.slug, visibility="hidden")
chosen = st.navigation([*pages.values(), typed], position="top")
if (wanted := state.wanted_page()) is not None:
    st.switch_page(pages[wanted])
chosen.run()
