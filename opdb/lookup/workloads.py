"""The workload that a request means: the one that is stored, else harvested then and there.

Importing this module imports no torch: only a harvest does, and a look at what a model takes.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from opdb.errors import DatabaseError, InputError, OpdbError, UnknownModelError
from opdb.garbage import collected
from opdb.growth import stands_for
from opdb.lookup.harvesting import harvests_of
from opdb.lookup.options import ModelOptions
from opdb.lookup.requests import request_for, short_for
from opdb.lookup.words import describe, generation_of, note_harvest, training_of
from opdb.models import ModelRequest
from opdb.models.catalogue import is_known, unknown_hint, unknown_model
from opdb.models.usual import is_usual, size_of, times
from opdb.records import COMPILED_MODES, Harvest, Json, Mode, Stored, Workload
from opdb.runs.progress import Progress

if TYPE_CHECKING:
    from opdb.store import Store

_OWN_CODE = "python"
"""The source of models of one's own, whose code may say what their inputs are."""


class NotHarvestedError(InputError):
    """No stored workload is the one that a request means, and none is to be harvested."""


def find_workload(
    store: Store, name: str, options: ModelOptions, mode: Mode, *, harvest: bool = True
) -> Stored:
    """Return the workload that a name and options mean, harvested now where it is not stored.

    A name that no source knows may be short for the model of a summary file. For a mode that
    compiles, nothing is harvested: only a model's device shows what it is compiled to.

    Raises:
        InputError: it is not known, cannot be harvested, or is not stored and not to be harvested.
    """
    request = request_for(name, options)
    may = harvest and mode not in COMPILED_MODES
    try:
        try:
            return workload_of(store, request, harvest=may)
        except UnknownModelError:
            if (meant := short_for(request, options)) is None:
                raise
            return workload_of(store, meant, harvest=may)
    except NotHarvestedError as error:
        hint = ["opdb", "harvest", name, *options.as_arguments(), *database_option(store)]
        then = ""
        if mode in COMPILED_MODES:
            hint += ["--mode", "compile"]
            then = " on the device, then opdb bench fused enter_graph"
        raise InputError(f"{error}; to add it: {shlex.join(hint)}{then}") from error


def database_option(store: Store) -> list[str]:
    """Return the option that names a database; none of the one that is opened without it."""
    from opdb.store import default_url

    return [] if store.url == default_url() else ["--db", store.location]


def workload_of(store: Store, request: ModelRequest, *, harvest: bool = True) -> Stored:
    """Return the workload that a request means: as it is stored, else harvested now and saved.

    This is the policy of all that reads: what is stored counts, even where other code or packages
    harvested it. All that measures asks `opdb.bench.harvests.harvest_into`, which takes only what
    the same code and packages harvested. Where the database cannot be written, `unsaved` says so.

    Raises:
        NotHarvestedError: it is not stored, and not to be harvested.
        InputError: it is not stored, and the model is not known or cannot be harvested.
    """
    found = stored_workload(store, request)
    if found is not None:
        return Stored(Harvest(found))
    own = _of_own_inputs(store, request)
    if request.source is None and not is_known(request.name):
        if own is None:
            raise _unknown(store, request)
        return Stored(Harvest(own))
    try:
        if not harvest:
            raise NotHarvestedError(_unharvested(store, request))
        return _harvested(store, request)
    except InputError:
        if own is None:
            raise
        return Stored(Harvest(own))


def workloads_of(
    store: Store, requests: Sequence[ModelRequest], shown: Progress
) -> dict[str, Stored | OpdbError]:
    """Return what each request means, or why that is not known, by the request's `repr`.

    What is stored counts, as in `workload_of`. Models of which nothing is stored are harvested, in
    several processes where that pays; nothing is saved. `shown` hears of each request, and what
    is unusual about a workload.
    """

    def with_captured(workload: Workload | None) -> Harvest | None:
        return None if workload is None else Harvest(workload, store.captured(workload))

    known: dict[str, Stored | OpdbError] = {}
    for request, found, harvest_s in harvests_of(
        requests, lambda each: with_captured(stored_workload(store, each)), shown, processes=None
    ):
        if isinstance(found, OpdbError):
            # Where a model of one's own cannot be harvested, what is stored of it serves.
            own = with_captured(_of_own_inputs(store, request))
            known[repr(request)] = found if own is None else Stored(own)
        else:
            note_harvest(shown.note, found)
            known[repr(request)] = Stored(found, harvest_s=harvest_s)
    return known


def stored_workload(store: Store, request: ModelRequest) -> Workload | None:
    """Return the stored workload that a request means; None where there is none.

    A size that the request does not say is the model's own.

    Raises:
        InputError: several are stored, and which the model takes unless told cannot be said here.
    """
    if request.num_classes is not None:
        return None  # no workload tells of how many classes it is
    alike = _alike(store, request)
    possible = [each for each in alike if each.batch_size == request.batch_size]
    if request.phase == "decode":
        if possible:
            return possible[0]  # one token: nothing else tells them apart
        sizes = sizes_of_pass(request)
        return _first(
            [each for each in other_sizes(store.workloads, request) if stands_for(each, sizes)]
        )
    if request.inputs is not None:
        return _of_inputs(possible, request)
    if request.input_size is not None:
        return _first([each for each in possible if size_of(each) == tuple(request.input_size)])
    usual = [(each, is_usual(each.source, each.name, size_of(each))) for each in possible]
    if known := [each for each, is_so in usual if is_so]:
        return _first(known)
    if unsure := [each for each, is_so in usual if is_so is None]:
        return _of_inputs(unsure, request)
    return None


def _alike(store: Store, request: ModelRequest) -> list[Workload]:
    """Return the stored workloads that are as requested, their inputs and batch apart."""
    found = store.workloads(
        request.name, dtype=request.dtype, memory_format=request.memory_format, phase=request.phase
    )
    return [
        each
        for each in found
        if request.source in (None, each.source)
        and training_of(each) == request.training
        and each.autocast == request.autocast
        and generation_of(each) == request.generation
    ]


def other_sizes(read: Callable[..., Sequence[Workload]], request: ModelRequest) -> list[Workload]:
    """Return the stored prefills or steps of the requested model and cache, at all their sizes.

    `read` is `Store.workloads`.
    """
    if request.generation is None or request.num_classes is not None:
        return []
    found = read(
        request.name, dtype=request.dtype, memory_format=request.memory_format, phase=request.phase
    )
    return [
        each
        for each in found
        if request.source in (None, each.source)
        and _but_lengths(each.inputs["generation"]) == _but_lengths(request.generation)
    ]


def sizes_of_pass(request: ModelRequest) -> dict[str, int]:
    """Return the sizes of a requested prefill or step, by the names of `opdb.growth.Sizes`."""
    found = {"batch": request.batch_size}
    if request.phase == "decode":
        found["context"] = request.filled
    else:
        found["prompt"] = request.new_tokens
    length = (request.generation or {}).get("cache_length")
    return found if length is None else {**found, "length": length}


def _but_lengths(generation: Json) -> Json:
    return {n: value for n, value in generation.items() if n not in ("context", "cache_length")}


def _of_own_inputs(store: Store, request: ModelRequest) -> Workload | None:
    """Return the one workload that contradicts nothing requested, of a model that nobody else has.

    It is one's own, whose code may say what its inputs are, the batch among them; or one that no
    source knows, but the database does.
    """
    if request.inputs is not None or request.num_classes is not None:
        return None
    if _is_of_a_source(request.name):
        return None
    size = request.input_size
    own = [each for each in _alike(store, request) if size is None or size_of(each) == tuple(size)]
    of_batch = [each for each in own if each.batch_size == request.batch_size]
    if request.batch_size == 1:  # as where none is said: another one may be the model's own
        of_batch = of_batch or own
    return of_batch[0] if len(of_batch) == 1 else None


def _is_of_a_source(name: str) -> bool:
    return ":" not in name and is_known(name)


def _of_inputs(possible: Sequence[Workload], request: ModelRequest) -> Workload | None:
    """Return the one that takes just the inputs that the model would be given here.

    Where that cannot be told here, for want of a library perhaps, a single one is taken to be it.

    Raises:
        InputError: it cannot be told, and several are stored.
    """
    if not possible:
        return None
    if len(possible) == 1 and possible[0].source == _OWN_CODE and request.inputs is None:
        return possible[0]  # its code says what its inputs are
    try:
        from opdb.models import load_to_look

        inputs = load_to_look(request).inputs
    except (ImportError, InputError) as error:
        if len(possible) == 1:
            return possible[0]
        sizes = ", ".join(times(size_of(each) or ()) for each in possible)
        raise InputError(
            f"{request.name} was harvested for several inputs ({sizes}); choose with --input-size: "
            f"which it takes unless told cannot be said here: {error}"
        ) from error
    return _first([each for each in possible if _without_training(each.inputs) == inputs])


def _without_training(inputs: Json) -> Json:
    return {name: value for name, value in inputs.items() if name != "training"}


def _first(found: Sequence[Workload]) -> Workload | None:
    return found[0] if found else None


def _harvested(store: Store, request: ModelRequest) -> Stored:
    """Harvest a request and save what is found, as far as the database takes it."""
    with collected():
        [(_, found, harvest_s)] = harvests_of([request.checked()], lambda _: None)
    if isinstance(found, OpdbError):
        raise found
    stale, unsaved = _saved(store, request, found)
    return Stored(found, stale, harvest_s, unsaved)


def _saved(store: Store, request: ModelRequest, found: Harvest) -> tuple[int, str | None]:
    """Save a harvest; return how many runs it made stale, and why it could not be saved."""
    if request.num_classes is not None:
        return 0, "a stored workload does not tell of how many classes it is"
    try:
        stale = store.save_workload(found.workload, found.captured, fingerprint=found.fingerprint)
    except DatabaseError as error:
        return 0, str(error)
    return stale, None


def _unknown(store: Store, request: ModelRequest) -> InputError:
    """Return the error of a model that no source knows: what of it is stored, if any is."""
    stored = store.workload_names()
    if request.name in stored:
        return InputError(
            f"{_unharvested(store, request)}; unknown model {request.name!r} in the packages "
            f"installed here {unknown_hint(request.name)}"
        )
    return unknown_model(request.name, stored)


def _unharvested(store: Store, request: ModelRequest) -> str:
    """Say that a request is not stored, and what of its model is."""
    found = [describe(each, usual_size=True) for each in store.workloads(request.name)[:8]]
    only = f", only for: {'; '.join(dict.fromkeys(found))}" if found else f" into {store.location}"
    return f"{request.name} was not harvested for {describe(request, usual_size=True)}{only}"
