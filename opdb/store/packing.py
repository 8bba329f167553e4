"""JSON values as short texts of one line: base64 of zlib-compressed canonical JSON."""

from __future__ import annotations

import json
import zlib
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from opdb.records import Json, canonical_json

MOST_BYTES = 64 * 1024 * 1024
"""The longest JSON that is unpacked: a short text could claim to hold gigabytes."""


def pack(document: Json) -> str:
    """Return a JSON value's short text."""
    compressed = zlib.compress(canonical_json(document).encode(), 9)
    return b2a_base64(compressed, newline=False).decode()


def unpack(text: str) -> Json:
    """Read a JSON value from its short text.

    Raises:
        ValueError: the text is damaged, cut off, or holds too much.
    """
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(a2b_base64(text, strict_mode=True), MOST_BYTES)
    except (Base64Error, zlib.error, ValueError) as error:
        raise ValueError(f"damaged: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise ValueError("damaged: cut off, or more than it may hold")
    return json.loads(found.decode())  # told that it is UTF-8, it looks no further
