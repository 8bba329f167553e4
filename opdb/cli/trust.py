"""What `opdb validate` shows on request: duplicates, costs of other boards, the same kernels."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from opdb.cli.console import print_json, print_table
from opdb.cli.selection import describe, identity
from opdb.derive.boards import Factor
from opdb.derive.boards import in_words as factors_in_words
from opdb.derive.duplicates import Agreement, Difference, agreement, pairs
from opdb.derive.launches import Launches
from opdb.errors import InputError
from opdb.records import Json
from opdb.units import counted, show_share

if TYPE_CHECKING:
    from opdb.derive.duplicates import Pair
    from opdb.predict import Predictor, Transfer
    from opdb.records import ModelRun, Workload
    from opdb.store import Store

_SHOWN = 12
"""Rows of a list that a person is shown; --json has all."""


# Duplicates


def duplicates(
    store: Store, predictor: Predictor, models: Collection[str], *, as_json: bool
) -> None:
    """Show in how many pairs of independent measurements the intervals hold.

    Raises:
        InputError: nothing was measured twice over.
    """
    found: list[Pair] = []
    for board in store.boards(predictor.device.slug):
        if store.visit_outcomes(board.device, board=board.uuid, role="duplicate"):
            found += pairs(store.campaigns(board=board.uuid), store.visits(board.uuid))
    kinds = {c.key: c.kind for c in store.configurations()}
    if models:
        wanted = {c.key for n in models for w in store.workloads(n) for c in w.occurrences()}
        found = [pair for pair in found if pair.configuration in wanted]
    if not found:
        raise InputError("nothing was measured twice over yet; opdb bench does so on the device")
    time = agreement(pair.time for pair in found)
    energy = agreement(pair.energy for pair in found)
    if as_json:
        rows = [_pair_document(pair, kinds[pair.configuration]) for pair in found]
        print_json({"duplicates": _duplicates_document(len(found), time, energy), "rows": rows})
        return
    by_kind: dict[str, list[Pair]] = {}
    for pair in found:
        by_kind.setdefault(kinds[pair.configuration], []).append(pair)
    print_table(
        ("kind", "pairs", "time: inside", "median apart", "energy: inside", "median apart"),
        [_kind_row(kind, of_kind) for kind, of_kind in [*sorted(by_kind.items()), ("all", found)]],
    )
    print("inside: two independent measurements agree within their combined 95 % interval")


def _kind_row(kind: str, of_kind: Sequence[Pair]) -> tuple[object, ...]:
    cells: list[object] = []
    for found in (agreement(p.time for p in of_kind), agreement(p.energy for p in of_kind)):
        cells += [show_share(found.share_inside if found else None)]
        cells += [show_share(found.median_difference if found else None)]
    return kind, len(of_kind), *cells


def _duplicates_document(count: int, time: Agreement | None, energy: Agreement | None) -> Json:
    return {
        "pairs": count,
        "share_inside_time": time.share_inside if time else None,
        "share_inside_energy": energy.share_inside if energy else None,
        "median_difference_time": time.median_difference if time else None,
        "median_difference_energy": energy.median_difference if energy else None,
    }


def _pair_document(pair: Pair, kind: str) -> Json:
    return {
        "kind": kind,
        "configuration": pair.configuration,
        "setting": pair.setting,
        "board": pair.board,
        "time": _difference_document(pair.time),
        "energy": _difference_document(pair.energy),
    }


def _difference_document(difference: Difference | None) -> Json:
    if difference is None:
        return None
    return {"difference": difference.relative, "inside": difference.inside}


# Other boards


def transfer(store: Store, predictor: Predictor, models: Collection[str], *, as_json: bool) -> None:
    """Show how right predictions are that rest on another board's costs alone.

    Raises:
        InputError: no measured run is covered by another board.
    """
    found = predictor.transfers(models)
    if not found:
        raise InputError("no measured run is covered by the costs of another board of the device")
    rows = [_transfer_document(each) for each in found]
    summary = {
        name: {how: _median_and_largest(row[f"{how}_{name}"] for row in rows) for how in _HOW}
        for name in ("time", "energy")
    }
    if as_json:
        print_json({"transfers": rows, "summary": summary})
        return
    print_table(
        ("model", "workload", "mode", "from", "to", "time", "by factors", "energy", "by factors"),
        [_transfer_row(each, row) for each, row in zip(found, rows, strict=True)],
    )
    for board, origin in dict.fromkeys((t.raw.prediction.board, t.origin) for t in found):
        by = next(t.factors for t in found if (t.raw.prediction.board, t.origin) == (board, origin))
        print(f"from {_short(origin)} to {_short(board)}: {factors_in_words(by)}")
    for name, errors in summary.items():
        raw, brought = errors["raw"], errors["factored"]
        if raw and brought:
            print(
                f"{name}: median error {show_share(raw['median'])} as it is, "
                f"{show_share(brought['median'])} by factors; largest "
                f"{show_share(raw['largest'])} and {show_share(brought['largest'])}"
            )


_HOW = ("raw", "factored")


def _transfer_document(each: Transfer) -> dict[str, Json]:
    prediction = each.raw.prediction
    return {
        **identity(prediction.workload),
        "mode": prediction.mode,
        "board": prediction.board,
        "from": each.origin,
        "raw_time": each.raw.attribution_time,
        "factored_time": each.brought.attribution_time,
        "raw_energy": each.raw.attribution_energy,
        "factored_energy": each.brought.attribution_energy,
        "factors": {
            "base_power": each.factors.base_power,
            "time": _factor_document(each.factors.time),
            "dynamic_energy": _factor_document(each.factors.dynamic_energy),
        },
    }


def _factor_document(factor: Factor | None) -> Json:
    if factor is None:
        return None
    return {"value": factor.value, "spread": factor.spread, "anchors": factor.count}


def _transfer_row(each: Transfer, row: dict[str, Json]) -> tuple[object, ...]:
    prediction = each.raw.prediction
    ratios = (row[f"{how}_{name}"] for name in ("time", "energy") for how in _HOW)
    return (
        prediction.workload.name,
        describe(prediction.workload),
        prediction.mode,
        _short(each.origin),
        _short(prediction.board),
        *("–" if ratio is None else f"{ratio:.3f}" for ratio in ratios),
    )


def _median_and_largest(ratios: Iterable[float | None]) -> Json:
    errors = [abs(ratio - 1) for ratio in ratios if ratio is not None]
    if not errors:
        return None
    return {"count": len(errors), "median": statistics.median(errors), "largest": max(errors)}


def _short(board: str) -> str:
    return board[:12]


# The same kernels


def kernels(store: Store, predictor: Predictor, models: Collection[str], *, as_json: bool) -> None:
    """Show kernels that a model launched and its operators did not, and the other way round.

    Raises:
        InputError: no measured run saw its kernels.
    """
    found = [
        (workload, run, launches)
        for workload, run in predictor.runs(models)
        if (launches := predictor.launches(workload, run)) is not None
    ]
    if not found:
        raise InputError("no measured run saw its kernels; run opdb measure on a GPU")
    if as_json:
        print_json({"kernels": [_launches_document(*each) for each in found]})
        return
    print_table(
        ("model", "workload", "mode", "kernels", "not its operators'", "its operators' alone"),
        [
            (
                workload.name,
                describe(workload),
                run.mode,
                launches.launched,
                sum(launches.model.values()),
                "unknown" if launches.unseen else sum(launches.operators.values()),
            )
            for workload, run, launches in found
        ],
    )
    for workload, run, launches in found:
        if launches.agree:
            continue
        print(f"\n{workload.name} {describe(workload)} {run.mode}: {in_words(launches)}")
        for name, count in list(launches.model.items())[:_SHOWN]:
            print(f"  model {count} × {name}")
        for name, count in list(launches.operators.items())[:_SHOWN]:
            print(f"  operators {count} × {name}")
    same = sum(launches.agree for _, _, launches in found)
    print(f"runs that launched exactly the kernels of their operators: {same} of {len(found)}")


def in_words(launches: Launches) -> str:
    """Say in one line how a model's kernels differ from its operators'."""
    said = [
        "kernels that are not its operators': "
        f"{sum(launches.model.values())} of {launches.launched}",
        f"its operators' that are not the model's: {sum(launches.operators.values())}",
    ]
    if launches.unseen:
        unseen = counted(len(launches.unseen), "configuration")
        said.append(f"of {unseen} the kernels are not known yet")
    return ", ".join(said)


def _launches_document(workload: Workload, run: ModelRun, launches: Launches) -> Json:
    return {
        **identity(workload),
        "mode": run.mode,
        "run": run.id,
        "launched": launches.launched,
        "agree": launches.agree,
        "model_alone": dict(launches.model),
        "operators_alone": dict(launches.operators),
        "unseen": list(launches.unseen),
    }
