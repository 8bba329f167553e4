"""Short forms in a set's files, and how they are read.

* A key, UUID or campaign's id that rows refer to is given by its first characters: as many as tell
  it from all others of its kind in the set, at least `SHORTEST`.
* Kernels have long names: `kernels.csv` holds each once, keyed by its SHA-256; a row counts them
  by that key, `3f2a91b0c4d5 77ab01c2d3e4*2`.
* `calls.csv` has one row a workload: the operators it calls, each a configuration with its form,
  and its calls in order as positions in that list; calls that are repeated, as a model's layers
  are, once: `0 (1 2 3)*32 4`.
* A cost's mean that equals its median, as that of two visits does, is left out.
* The device time that a visit took has four significant digits: what follows is noise.
* Facts of a run are packed as raw samples are, where that is shorter.
* Raw samples are packed, see `opdb.store.raw`.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from opdb.records import canonical_json
from opdb.store.packing import pack, unpack
from opdb.store.rows import NewRow
from opdb.store.schema import QUANTITIES
from opdb.store.sets import Columns

SHORTEST = 12
"""Characters of a short key: with a million keys, two of 12 hexadecimal digits rarely agree."""

REFERRED = {
    "configuration": ("configurations.csv", "key"),
    "workload": ("workloads.csv", "key"),
    "campaign": ("campaigns.csv", "id"),
    "board": ("boards.csv", "uuid"),
}
"""Columns that refer to rows of another file, and the column there that tells these apart."""

KERNELS = ("key", "name")
"""The columns of `kernels.csv`."""

CALLS = ("workload", "operators", "calls")
"""The columns of `calls.csv`."""

SIGNS = 2
"""Calls that are worth the signs around a repeated block."""

SOUGHT = 8
"""Places of a call, after each of it, at which a repetition is sought."""

MOST_CALLS = 10_000_000
"""Calls of a set's workloads at most: a few characters could claim any number."""

Rows: TypeAlias = list[NewRow]

_REPEATED = re.compile(r"\(([0-9]+(?: [0-9]+)*)\)\*([1-9][0-9]*)")
_ONCE = re.compile(r"[0-9]+(?: [0-9]+)*")

_COUNTS = re.compile(r"[0-9a-f]+(?:\*[1-9][0-9]*)?(?: [0-9a-f]+(?:\*[1-9][0-9]*)?)*")


def in_short(contents: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return the rows of a set's files, by file name, as they are written: those of every file."""
    found = {name: list(map(dict, rows)) for name, rows in contents.items()}
    names = {name for rows in found.values() for row in rows for name in _kernels(row)}
    kernels = {kernel_key(name): name for name in sorted(names)}
    lengths = {
        column: short_length({row[key] for row in contents[file]})
        for column, (file, key) in REFERRED.items()
    }
    length = short_length(kernels)
    for rows in found.values():
        for row in rows:
            for column in lengths.keys() & row.keys():
                row[column] = row[column][: lengths[column]]
            if isinstance(row.get("kernels"), str):
                row["kernels"] = _kernels_in_short(_kernels(row), length)
    for column in ("configuration", "workload"):
        file, key = REFERRED[column]
        for row in found[file]:
            row[key] = row[key][: lengths[column]]
    return {
        **found,
        "calls.csv": _calls_in_short(found["calls.csv"], found["workloads.csv"]),
        "costs.csv": list(map(_cost_in_short, found["costs.csv"])),
        "kernels.csv": [{"key": key[:length], "name": name} for key, name in kernels.items()],
        "visits.csv": [
            {**row, "cost_s": float(f"{row['cost_s']:.4g}")} for row in found["visits.csv"]
        ],
        "model_runs.csv": [
            {**row, "facts": facts_in_short(row["facts"])} for row in found["model_runs.csv"]
        ],
    }


def short_length(keys: Collection[str]) -> int:
    """Return the shortest length at which all keys differ, at least `SHORTEST`."""
    length = SHORTEST
    while len({key[:length] for key in keys}) < len(set(keys)):
        length += 1
    return length


def lengthened(what: str, keys: Collection[str]) -> Callable[[str], str]:
    """Return the function that finds the key that begins so.

    It raises ValueError where there is none or more than one; `what` says what they are keys of.
    """
    whole = set(keys)
    beginnings: dict[int, dict[str, str | None]] = {}

    @cache
    def find(short: str) -> str:
        if short in whole:
            return short
        length = len(short)
        if length < SHORTEST:
            raise ValueError(f"no such {what} in the set")
        if length not in beginnings:
            known: dict[str, str | None] = {}
            for key in whole:
                known[key[:length]] = None if key[:length] in known else key
            beginnings[length] = known
        if short not in beginnings[length]:
            raise ValueError(f"no such {what} in the set")
        found = beginnings[length][short]
        if found is None:
            raise ValueError(f"more than one {what} in the set begins so")
        return found

    return find


def is_short_for(short: str, key: str) -> bool:
    """Whether a text is a key or at least `SHORTEST` of its first characters."""
    return key.startswith(short) and (len(short) >= SHORTEST or short == key)


def kernel_key(name: str) -> str:
    """Return the SHA-256 (hex) of a kernel's name."""
    return hashlib.sha256(name.encode()).hexdigest()


def kernels_at_length(names: Mapping[str, str]) -> Callable[[str | None], str | None]:
    """Return the function that reads the kernels of a row; `names` are the set's by key.

    It raises ValueError for anything that is not such a list.
    """
    find = lengthened("kernel", names)

    def read(field: str | None) -> str | None:
        if field is None:
            return None
        if field == "{}":
            return field
        if not _COUNTS.fullmatch(field):
            raise ValueError("not a list of kernels")
        counts = (each.partition("*") for each in field.split(" "))
        return canonical_json({names[find(key)]: int(count or 1) for key, _, count in counts})

    return read


def _kernels(row: NewRow) -> dict[str, int]:
    """Return the kernels that a row counts by name; costs give their number alone."""
    text = row.get("kernels")
    return json.loads(text) if isinstance(text, str) else {}


def _kernels_in_short(counts: Mapping[str, int], length: int) -> str:
    """Return the kernels of a row; none at all are an empty JSON object."""
    if not counts:
        return "{}"
    return " ".join(
        kernel_key(name)[:length] + (f"*{count}" if count != 1 else "")
        for name, count in counts.items()
    )


def _calls_in_short(calls: Rows, workloads: Rows) -> Rows:
    """Return one row a workload, its operators in the order of their first calls."""
    sequences = {row["key"]: row["sequence"] for row in workloads}
    found: dict[str, dict[str, str]] = {}
    for row in calls:
        operators = found.setdefault(row["workload"], {})
        operators[str(row["number"])] = f"{row['configuration']}:{row['form']}"
    written = []
    for workload, operators in found.items():
        called = [operators[number] for number in sequences[workload].split(" ")]
        numbers = {operator: str(number) for number, operator in enumerate(dict.fromkeys(called))}
        columns = workload, " ".join(numbers), folded([numbers[each] for each in called])
        written.append(dict(zip(CALLS, columns, strict=True)))
    return written


def folded(sequence: Sequence[str]) -> str:
    """Return a sequence of numbers as one text, what is repeated at once told once."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, number in enumerate(sequence):
        places[number].append(place)
    told: list[str] = []
    place = 0
    while place < len(sequence):
        best = 1, 1
        same = places[sequence[place]]
        first = bisect_right(same, place)
        for again in same[first : first + SOUGHT]:
            times = _times(sequence, place, again - place)
            best = max(best, (again - place, times), key=lambda each: each[0] * (each[1] - 1))
        length, times = best
        if length * (times - 1) <= SIGNS:
            told.append(sequence[place])
            place += 1
        else:
            told.append(f"({' '.join(sequence[place : place + length])})*{times}")
            place += length * times
    return " ".join(told)


def _times(sequence: Sequence[str], place: int, length: int) -> int:
    """Return how often the block of a length at a place is there, one upon the other."""
    end = place + length
    while end < len(sequence) and sequence[end] == sequence[end - length]:
        end += 1
    return (end - place) // length


def unfolded(text: str, most: int = MOST_CALLS) -> list[str]:
    """Return the sequence of numbers that a text tells.

    Raises:
        ValueError: it tells none, or more than `most`.
    """
    sequence: list[str] = []
    end = 0
    while end < len(text):
        if found := _REPEATED.match(text, end):
            block, times = found[1].split(" "), int(found[2])
        elif found := _ONCE.match(text, end):
            block, times = found[0].split(" "), 1
        else:
            raise ValueError("not a list of calls")
        if len(sequence) + len(block) * times > most:
            raise ValueError(f"more than {MOST_CALLS:,} calls in a set")
        sequence += block * times
        end = found.end() + 1
        if text[found.end() : end] not in (" ", "") or end == len(text):
            raise ValueError("not a list of calls")
    if not sequence:
        raise ValueError("not a list of calls")
    return sequence


def calls_at_length(fields: Columns) -> Columns:
    """Return the fields of `calls.csv` with one row an operator that a workload calls.

    Each has the workload's calls in order beside it, as the file has them.

    Raises:
        InputError: a call is none of its workload's operators.
    """
    lines: list[int] = []
    names = ("workload", "number", "configuration", "form", "calls", "sequence")
    columns: dict[str, list[str]] = {name: [] for name in names}
    left = MOST_CALLS
    for row, (workload, operators, sequence) in enumerate(
        zip(*(fields.values[name] for name in CALLS), strict=True)
    ):
        known = {str(i): each.partition(":") for i, each in enumerate(operators.split(" "))}
        try:
            in_order = unfolded(sequence, left)
        except ValueError as error:
            raise fields.error(row, "calls", sequence, error) from error
        left -= len(in_order)
        counts = Counter(in_order)
        try:
            called = [known[number] for number in counts]
        except KeyError as unknown:
            why = f"the workload has {len(known)} operators"
            raise fields.error(row, "calls", unknown.args[0], why) from unknown
        columns["workload"] += [workload] * len(counts)
        columns["number"] += counts
        columns["configuration"] += [configuration for configuration, _, _ in called]
        columns["form"] += [form for _, _, form in called]
        columns["calls"] += map(str, counts.values())
        columns["sequence"] += [" ".join(in_order)] * len(counts)
        lines += [fields.lines[row]] * len(counts)
    return Columns(fields.path, lines, columns)


def facts_in_short(text: str) -> str:
    """Return the facts of a run, a JSON object, as the shorter of this text and it packed."""
    return min(text, pack(json.loads(text)), key=len)


def facts_at_length(text: str) -> str:
    """Return the facts of a run as JSON; raises ValueError where they are packed and damaged."""
    return text if text.startswith("{") else canonical_json(unpack(text))


def _cost_in_short(row: NewRow) -> NewRow:
    """Return a cost without the means that equal their medians."""
    same = {
        f"{name}_mean": None for name in QUANTITIES if row[f"{name}_mean"] == row[f"{name}_median"]
    }
    return {**row, **same}


def costs_at_length(found: Columns) -> Columns:
    """Return costs with the means that were left out."""
    means = {}
    for name in QUANTITIES:
        mean, median = (found.values[f"{name}_{part}"] for part in ("mean", "median"))
        pairs = zip(mean, median, strict=True)
        means[f"{name}_mean"] = [median if mean is None else mean for mean, median in pairs]
    return found.having(**means)
