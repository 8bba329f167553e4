"""Every decision of every kind on sample calls, as text lines, to hold them to a recorded file.

`python -m tests.kinds.pinned` records the answers of today's code for the calls in the file. Do so
only where an answer is meant to change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from opdb.estimates.features import units
from opdb.kinds import KINDS
from opdb.kinds.view import always, numel
from opdb.records import Configuration, Json

FILE = Path(__file__).parents[1] / "data" / "kinds.json"


def traits(name: str) -> dict[str, Json]:
    """Return what a kind says whatever it is called with, defaults left out."""
    kind = KINDS[name]
    said = {
        "signature": kind.spelled,
        "settings": list(kind.settings),
        "units": units(kind),
        "mutates": list(kind.mutates),
        "synchronises": kind.waits_rule is always,
        "raised": kind.raised,
        "then_indices": kind.then_indices,
        "canonical": kind.canonical is not None,
        "positive": list(kind.positive),
        "probabilities": list(kind.probabilities),
        "creates": kind.creates,
    }
    return {what: value for what, value in said.items() if value}


def answers(call: Configuration) -> dict[str, Json]:
    """Return what a kind says of a call, and what changes under autocast or without gradients."""
    plain = _answers(call)
    variants = {
        "autocast": replace(call, autocast="bfloat16"),
        "no input needs a gradient": _without_input_gradients(call),
    }
    for title, variant in variants.items():
        for what, value in _answers(variant).items():
            if value != plain[what]:
                plain[f"{title}: {what}"] = value
    return {what: value for what, value in plain.items() if value not in (None, 0, False)}


def _answers(call: Configuration) -> dict[str, Json]:
    kind = KINDS[call.kind]
    asked: dict[str, Callable[[], Any]] = {
        "elements": lambda: sum(map(numel, kind.shapes_rule(kind.view(call)))),
        "flops": lambda: kind.flops(call),
        "bytes": lambda: list(kind.traffic(call)),
        "output bytes": lambda: [kind.view(call).output_bytes, kind.activation_bytes(call)],
        "launches": lambda: kind.launches(call),
        "waits": lambda: kind.waits(call),
        "values": lambda: kind.values_rule(kind.view(call)),
        "backward flops": lambda: kind.backward_flops(call),
        "backward bytes": lambda: kind.backward_bytes(call),
        "nonzero": lambda: [round(kind.nonzero_share(call, share), 9) for share in (0.25, 1.0)],
        "canonical": lambda: _rewritten(call),
        "bounds": lambda: {name: b for name in call.inputs if (b := _bound(call, name))} or None,
    }
    return {what: _said(ask) for what, ask in asked.items()}


def _bound(call: Configuration, name: str) -> int | None:
    kind = KINDS[call.kind]
    return kind.bound_rule(kind.view(call), name)


def _said(ask: Callable[[], Any]) -> Json:
    try:
        said: Json = ask()
    except (LookupError, TypeError, ValueError) as error:
        return type(error).__name__
    return said


def _rewritten(call: Configuration) -> Json:
    """Return the call as its kind rewrites it, None where that changes nothing."""
    parameters, inputs = json.loads(json.dumps([dict(call.parameters), dict(call.inputs)]))
    rewrite = KINDS[call.kind].canonical
    if rewrite is not None:
        rewrite(parameters, inputs)
    again = replace(call, parameters=parameters, inputs=inputs)
    return None if again.json == call.json else again.json


def _without_input_gradients(call: Configuration) -> Configuration:
    def marked(value: Any) -> Any:
        if isinstance(value, list):
            return [marked(item) for item in value]
        free = isinstance(value, dict) and "same" not in value and value.get("role") != "weight"
        return {**value, "gradient": False} if free else value

    return replace(call, inputs={name: marked(value) for name, value in call.inputs.items()})


def recorded() -> dict[str, Any]:
    """Return the file: `kinds`, and `calls` as pairs of a configuration's text and the answers."""
    return json.loads(FILE.read_text())


def lines(calls: list[str]) -> Iterator[str]:
    """Yield the file's text for these calls, a line for each kind and each call."""
    yield '{"kinds": {'
    kinds = [f"{json.dumps(name)}: {json.dumps(traits(name))}" for name in sorted(KINDS)]
    yield ",\n".join(kinds)
    yield '}, "calls": ['
    found = [[text, answers(Configuration.from_json(text))] for text in sorted(calls)]
    yield ",\n".join(json.dumps(pair, separators=(",", ":")) for pair in found)
    yield "]}"


if __name__ == "__main__":
    FILE.write_text("\n".join(lines([text for text, _ in recorded()["calls"]])) + "\n")
