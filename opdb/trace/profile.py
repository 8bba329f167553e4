"""A trace of torch's profiler: its operators as trees, each with the device work it launched."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opdb.errors import InputError
from opdb.records import Json

DEVICE_WORK = frozenset(["kernel", "gpu_memcpy", "gpu_memset"])
RUNTIME = frozenset(["cuda_runtime", "cuda_driver"])

_NO_TRACE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading something else as a trace raises."""

Event = dict[str, Any]


@dataclass
class Node:
    """An operator's event, the operators that it calls, and the device work that it launched."""

    event: Event
    children: list[Node] = field(default_factory=list)
    work: list[Event] = field(default_factory=list)

    def all_work(self) -> Iterator[Event]:
        """Yield the device work of the operator and of those that it calls."""
        yield from self.work
        for child in self.children:
            yield from child.all_work()


@dataclass(frozen=True)
class Profile:
    """A profile: the whole document, operators nobody calls, all device work by start."""

    document: dict[str, Json]
    roots: Sequence[Node]
    work: Sequence[Event]


def read_profile(path: Path) -> Profile:
    """Read a trace of torch's profiler, compressed by gzip or not.

    Raises:
        InputError: it cannot be read, is no such trace, or has no device work or shapes.
    """
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        document = json.loads(content)
        events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
        profile = Profile(document, *_joined(events))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (*_NO_TRACE, EOFError, zlib.error) as error:
        raise InputError(f"{path}: no trace of torch's profiler in Chrome's JSON") from error
    if not profile.work:
        raise InputError(
            f"{path}: holds no work of a GPU; profile with ProfilerActivity.CUDA beside CPU"
        )
    if not any("Input Dims" in e["args"] for e in events if e.get("cat") == "cpu_op"):
        raise InputError(f"{path}: holds no shapes; profile with record_shapes=True")
    return profile


def _joined(events: Sequence[Event]) -> tuple[list[Node], list[Event]]:
    """Return operators that nobody calls, and all device work, given to what launched it."""
    operators = [Node(e) for e in events if e.get("cat") == "cpu_op"]
    for node in operators:
        node.event.setdefault("args", {})
        _check(node.event)
    by_id = {node.event["args"].get("External id"): node for node in operators}
    launches: Mapping[Any, Any] = {
        e["args"].get("correlation"): e["args"].get("External id")
        for e in events
        if e.get("cat") in RUNTIME and "args" in e
    }
    work = sorted((e for e in events if e.get("cat") in DEVICE_WORK), key=lambda e: e["ts"])
    for event in work:
        args = event.setdefault("args", {})
        _check(event)
        by = args.get("External id", launches.get(args.get("correlation")))
        if by is not None and by in by_id:
            by_id[by].work.append(event)
    return _trees(operators), work


def _check(event: Event) -> None:
    """Check what is read of an operator's or a kernel's event.

    Raises:
        ValueError: its name is no text, its times are no numbers, or its arguments no mapping.
    """
    times = event["ts"], event["dur"]
    if not all(type(each) in (int, float) and math.isfinite(each) for each in times):
        raise ValueError(f"times {times}")
    if not isinstance(event["name"], str) or not isinstance(event["args"], dict):
        raise ValueError("an event without a name or arguments")


def _trees(operators: Sequence[Node]) -> list[Node]:
    """Return the operators that nobody calls; each other one becomes a child of its caller."""
    threads: dict[Any, list[Node]] = defaultdict(list)
    for node in operators:
        threads[node.event["pid"], node.event["tid"]].append(node)
    roots: list[Node] = []
    for nodes in threads.values():
        open_: list[Node] = []
        for node in sorted(nodes, key=lambda n: (n.event["ts"], -n.event["dur"])):
            while open_ and _end(open_[-1]) <= node.event["ts"]:
                open_.pop()
            (open_[-1].children if open_ else roots).append(node)
            open_.append(node)
    return roots


def _end(node: Node) -> float:
    return float(node.event["ts"] + node.event["dur"])
