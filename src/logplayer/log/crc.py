"""CRC-32: the same values as zlib's, from code that is three times as fast where there is some."""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:  # pragma: no cover
    from zlib import crc32

__all__ = ["crc32"]
