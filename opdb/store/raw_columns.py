"""Columns of raw samples in a set's files: checked quickly, and brought to the last encoding."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opdb.store.packing import is_plain, unpacked
from opdb.store.raw import (
    decode_layers,
    decode_neighbours,
    decode_stretch,
    decode_stretches,
    decode_times,
    encode_layers,
    encode_neighbours,
    encode_stretch,
    encode_stretches,
    encode_times,
)

# Possessive (*+, ++): where a number ends, nothing is to be tried again.
_NUMBERS = rb"\[-?\d++(?:,-?\d++)*+\]"
_PAIRS = rb"\[-?\d++,-?\d++(?:,-?\d++,-?\d++)*+\]"
_RUNS = rb"\[\d++,\d{1,5}(?:,\d++,\d{1,5}){0,9}\]"
_STRETCH = (
    rb'{"b":\d++(?:,"c":RUNS)?,"d":\d++(?:,"e":PAIRS)?,"f":3(?:,"g":NUMBERS)?,"n":\d++'
    rb'(?:,"p":PAIRS)?(?:,"q":[1-9]\d*+,"t":NUMBERS)?(?:,"u":\d++)?(?:,"w":-?\d++)?}'
)
_PATH_TIME = rb'"[ !#-\[\]-~]*+":(?:0|[1-9]\d{0,17})'
_NEIGHBOURS = rb'{"a":NUMBERS,"n":[1-9]\d*+,"q":[1-9]\d*+,"t":NUMBERS}'


@dataclass(frozen=True)
class RawColumn:
    """How a column of raw samples is written and read, and what is written before it is packed.

    `spelled` is the regular expression of that, with names in place of those of lists.
    """

    encode: Callable[[Any], str]
    decode: Callable[[str], Any]
    spelled: bytes

    @functools.cached_property
    def written(self) -> re.Pattern[bytes]:
        """What is written before it is packed; compiled where it is asked for."""
        lists = ((b"NUMBERS", _NUMBERS), (b"PAIRS", _PAIRS), (b"RUNS", _RUNS))
        spelled = functools.reduce(lambda text, each: text.replace(*each), lists, self.spelled)
        return re.compile(spelled)

    def checked(self, text: str | None) -> str | None:
        """Return a text that can be read; None stays None.

        Raises:
            ValueError: it cannot be read.
        """
        # Matching is several times as fast as reading the numbers.
        if text is not None and not self.written.fullmatch(unpacked(text)):
            self.decode(text)
        return text

    def upgraded(self, text: str) -> str:
        """Return a text in this version's encoding."""
        return self.encode(self.decode(text)) if is_plain(text) else text


_ONE_STRETCH = RawColumn(encode_stretch, decode_stretch, _STRETCH)

RAW_COLUMNS = {
    "stretch": _ONE_STRETCH,
    "restore": _ONE_STRETCH,
    "repeats": RawColumn(
        encode_stretches,
        decode_stretches,
        rb"\[" + _STRETCH + rb"(?:," + _STRETCH + rb")*+\]",
    ),
    "neighbours": RawColumn(encode_neighbours, decode_neighbours, _NEIGHBOURS),
    "times": RawColumn(encode_times, decode_times, _NUMBERS),
    "layers": RawColumn(
        encode_layers,
        decode_layers,
        rb"{(?:" + _PATH_TIME + rb"(?:," + _PATH_TIME + rb")*+)?}",
    ),
}
"""Columns of raw samples by name, whatever table they are in."""
