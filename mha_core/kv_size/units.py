"""Bytes as people read them: powers of 1,024 with the exact number beside."""

from __future__ import annotations

UNITS = ("GiB", "MiB", "KiB")


def binary(n_bytes: int) -> str:
    """Bytes in GiB, MiB or KiB: 10.41 GiB; below 1 KiB in bytes."""
    for power, unit in zip((3, 2, 1), UNITS, strict=True):
        if n_bytes >= 1024**power:
            return f"{n_bytes / 1024**power:,.2f} {unit}"
    return f"{n_bytes:,} B"


def exact(n_bytes: int) -> str:
    """The same with the exact number: 10.41 GiB (11,173,625,856 B)."""
    return f"{binary(n_bytes)} ({n_bytes:,} B)" if n_bytes >= 1024 else binary(n_bytes)
