"""Hold predictions against the measured runs of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opdb.errors import InputError, UnknownNameError
from opdb.lookup.options import parse_mode
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.api.predictions import Tell
    from opdb.predict import Predictor
    from opdb.records import Mode
    from opdb.store import Store
    from opdb.studies.validation import Validation

_UNKNOWN = "what the models are compiled to is not known (opdb harvest … --mode compile)"


def validate(
    *models: str,
    modes: Sequence[str] = (),
    device: str | None = None,
    db: str | None = None,
    tell: Tell | None = None,
) -> Validation:
    """Hold predictions against measured runs, as `opdb validate` does; no model means all.

    Each board's run is held against what is predicted for that board, its own run left aside.
    `check(within)` of what is returned raises where an error is larger than that share.

    Raises:
        InputError: a model, mode or device is not known, or no run was measured.
    """
    from opdb.predict import check_mode, predictor_for
    from opdb.store import open_store

    chosen = [parse_mode(mode) for mode in modes]
    for mode in chosen:
        check_mode(mode)
    with open_store(db, create=False) as store:
        predictor = predictor_for(store, device, estimates=False)
        found, left_out = validation(predictor, known_models(store, models), chosen)
    if left_out is not None and tell is not None:
        tell(left_out)
    return found


def known_models(store: Store, models: Sequence[str]) -> list[str]:
    """Return the models.

    Raises:
        UnknownNameError: one has no workload in the database.
    """
    known = store.workload_names()
    for name in models:
        if name not in known:
            raise UnknownNameError("model", name, known)
    return list(models)


def validation(
    predictor: Predictor, models: Sequence[str], modes: Sequence[Mode]
) -> tuple[Validation, str | None]:
    """Hold predictions against measured runs; say in words which runs are left out, if any.

    Raises:
        InputError: no run was measured.
    """
    from opdb.predict import MODES
    from opdb.studies.validation import Validation

    answers = predictor.answers(models, modes or MODES)
    unknown = predictor.uncompiled(modes or MODES)
    left = f"left out: {plural(unknown, 'run')} in modes that compile: {_UNKNOWN}"
    if not answers:
        run_first = "no measured run to validate against; run opdb measure on the device"
        raise InputError(f"{run_first}; {left}" if unknown else run_first)
    return Validation(answers), left if unknown else None
