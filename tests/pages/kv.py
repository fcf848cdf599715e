"""What the tests of the page KV cache share: reading its figures, and doing what a visitor does."""

from __future__ import annotations

GEMMA = "gemma3-27b-nested-no-pattern"
LLAMA = "llama-3.1-8b"


def facts(page, at=0):
    return {label: (value, note) for label, value, note in page.sent("facts")[at]["facts"]}


def answer(page):
    """(the total in bytes, the leading sentence)."""
    sent = page.sent("facts")[0]
    return int(sent["facts"][0][2].removesuffix(" B").replace(",", "")), sent["lead"]


def paste(page, text):
    page.app.text_area(key="kv_text").set_value(text)
    return page.run()


def picked(page, name, value):
    page.app.session_state["_picks"][name] = value
    return page.run()


def chart(page, words):
    """The chart whose title has these words."""
    return next(part for part in page.sent("chart") if words in part["title"])
