"""A pasted text as a part of a link, and a picked file as a text."""

from __future__ import annotations

import base64
import binascii
import codecs
import zlib

# Longer addresses are cut or refused by servers on the way.
MAX_CODE = 6_000
MAX_UNPACKED = 2_000_000
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def packed_text(text: str) -> str | None:
    """The text compressed for a link; None where the link would grow too long."""
    if len(text) > MAX_UNPACKED:
        return None
    code = base64.urlsafe_b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode().rstrip("=")
    return code if len(code) <= MAX_CODE else None


def unpacked_text(code: str) -> str | None:
    """The text in a link; None where it is none, or would unpack to more than any text that was packed."""
    try:
        data = base64.b64decode(code + "=" * (-len(code) % 4), altchars=b"-_", validate=True)
        opened = zlib.decompressobj()
        text = opened.decompress(data, MAX_UNPACKED)
        return text.decode("utf-8") if opened.eof else None
    except (binascii.Error, ValueError, zlib.error):
        return None


def file_text(data: bytes) -> str | None:
    """A file's text, None where it is no UTF-8 or UTF-16 text."""
    try:
        return data.decode("utf-16") if data.startswith(UTF_16) else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
