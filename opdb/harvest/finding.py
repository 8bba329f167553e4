"""The one way from a request to its workload: what is stored, else a harvest then and there.

A `HarvestPolicy` says what of the database counts and what becomes of a harvest. Importing this
module imports no torch: only a harvest does, and a look at what a model takes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from opdb.errors import DatabaseError, InputError, OpdbError, kept
from opdb.growth import stands_for
from opdb.models import checked
from opdb.models.catalogue import is_usual, sources_of, unknown_hint, unknown_model
from opdb.progress import Progress
from opdb.records import COMPILED_MODES, Call, Harvest, Json, Mode, Stored, Workload
from opdb.spec import ModelSpec, describe, is_import_path, size_of
from opdb.summary_files import mark_processed
from opdb.units import show

if TYPE_CHECKING:
    from opdb.store import Store


class NotHarvestedError(InputError):
    """No stored workload is the one that a request means, and none is to be harvested."""


@dataclass(frozen=True)
class HarvestPolicy:
    """What of the database counts for a request, and what becomes of a harvest.

    All that reads accepts what is "stored", even where other code or packages harvested it. All
    that measures accepts only what the "same code" and packages harvested, or "nothing".

    A harvest is saved where `save` is not "no"; "may" puts up with a database that cannot be
    written. What only sweeps ask for (`swept`) calls nothing that `opdb bench` takes for pending.
    `finish` completes a harvest before it is saved.
    """

    accept: Literal["stored", "same code", "nothing"] = "stored"
    harvest: bool = True
    save: Literal["must", "may", "no"] = "may"
    swept: bool = False
    finish: Callable[[ModelSpec, Harvest], Harvest] | None = None


READ = HarvestPolicy()


def find_or_harvest(
    store: Store,
    requests: Iterable[ModelSpec],
    policy: HarvestPolicy = READ,
    shown: Progress | None = None,
) -> dict[str, Stored | OpdbError]:
    """Return what each request means, or why that is not known, by the request's `repr`.

    A request that fails does not stop the others. `shown` hears of each request, and what is
    unusual about a workload.

    Raises:
        DatabaseError: the database cannot be read, or not be written where it must be.
        ModuleNotFoundError: torch, with which models are harvested, is not installed.
    """
    shown = shown or Progress()
    answers: dict[str, Stored | OpdbError] = {}
    for request in {repr(request): request for request in requests}.values():
        shown.doing(f"{request.name} {describe(request)}")
        answer = _answer(store, request, policy)
        for line in harvest_notes(answer) if isinstance(answer, Stored) else ():
            shown.note(line)
        answers[repr(request)] = answer
        shown.done()
    return answers


def workload_of(store: Store, request: ModelSpec, policy: HarvestPolicy = READ) -> Stored:
    """Return the workload that a request means: see `find_or_harvest`.

    Where the database cannot be written, `unsaved` says so.

    Raises:
        NotHarvestedError: it is not stored, and not to be harvested.
        InputError: it is not stored, and the model is not known or cannot be harvested.
    """
    [found] = find_or_harvest(store, [request], policy).values()
    if isinstance(found, OpdbError):
        raise found
    return found


def _answer(store: Store, request: ModelSpec, policy: HarvestPolicy) -> Stored | OpdbError:
    errors: list[OpdbError] = []
    with kept(errors, repr(request.name), DatabaseError):
        found = _known(store, request, policy)
        if found is None:
            from opdb.harvest.passes import harvest_in_both

            started_s = time.monotonic()
            harvested = harvest_in_both(request)
            return _saved(store, request, harvested, time.monotonic() - started_s, policy)
        if policy.accept != "stored" and not policy.swept:
            store.ask_for(found.workload)
        return Stored(found)
    return errors[0]


def _known(store: Store, request: ModelSpec, policy: HarvestPolicy) -> Harvest | None:
    if policy.accept == "nothing":
        return None
    if policy.accept == "same code":
        return standing(store, request)
    if (stored := stored_workload(store, request)) is not None:
        return Harvest(stored, store.captured(stored))
    if request.source is None and not sources_of(request.name):
        if (only := _of_unknown(store, request)) is not None:
            return Harvest(only, store.captured(only))
        raise _unknown(store, request)
    if not policy.harvest:
        raise NotHarvestedError(_unharvested(store, request))
    return None


def _of_unknown(store: Store, request: ModelSpec) -> Workload | None:
    """Return the one workload that contradicts nothing requested, of a model the database knows."""
    size = request.input_size
    alike = [
        each
        for each in _alike(store, request)
        if request.inputs is None and size in (None, size_of(each))
    ]
    of_batch = [each for each in alike if request.batch_size in (None, each.batch_size)]
    if request.batch_size == 1:  # as where none is said
        of_batch = of_batch or alike
    return of_batch[0] if len(of_batch) == 1 else None


def standing(store: Store, request: ModelSpec) -> Harvest | None:
    """Return what is stored of a request where a harvest would find just that, else None."""
    known = fingerprint(request)
    found = None if known is None else store.harvested(known)
    return None if found is None else Harvest(*found, fingerprint=known)


def _saved(
    store: Store, request: ModelSpec, found: Harvest, harvest_s: float, policy: HarvestPolicy
) -> Stored:
    if policy.finish is not None:
        found = policy.finish(request, found)
    if policy.save == "no":
        return Stored(found, harvest_s=harvest_s)
    try:
        store.save_workload(
            found.workload, found.captured, swept=policy.swept, fingerprint=found.fingerprint
        )
    except DatabaseError as error:
        if policy.save == "must":
            raise
        return Stored(found, harvest_s, str(error))
    return Stored(found, harvest_s)


def compile_into(
    store: Store, request: ModelSpec, plain: Stored, device: str, slug: str, *, anew: bool = False
) -> Stored:
    """Compile what is stored of a request for a device, unless that stands; save it.

    Raises:
        InputError: the model cannot be compiled, or is no inference without autocast.
        NotCompiledError: dynamo captures no graph of it.
        CannotMeasureError: this version of torch does not show what inductor makes.
    """
    from opdb.compiled.groups import harvest_compiled

    known = fingerprint(request)
    found = None if anew or known is None else store.harvested(known, compiled_for=slug)
    started_s = time.monotonic()
    if found is not None:
        workload = found[0]
    else:
        workload = harvest_compiled(request, plain.workload, device, slug)
        # Asked again: the pass may have imported what was not installed.
        store.save_workload(workload, fingerprint=fingerprint(request))
    compiled = Harvest(workload, failure=plain.found.failure)
    harvest_s = time.monotonic() - started_s if found is None else None
    return replace(plain, found=compiled, harvest_s=harvest_s)


def mark(path: Path, database: Path | None, note: Callable[[str], None]) -> None:
    """Mark a summary file as processed, for all that it asks for is in a database, and say so.

    The marker is for people. In a checkout it tells of the checkout's own database: another one
    (None: on a server) leaves it as it is, and the note says why, as it does where the file cannot
    be written.
    """
    from opdb.store import checkout_database

    own = checkout_database(path)
    if own is not None and (database is None or database.resolve() != own):
        note(f"{path} is not marked as processed, for the database is not its checkout's {own}")
        return
    try:
        mark_processed(path)
    except InputError as error:
        note(f"not marked as processed, though all of it is stored: {error}")
    else:
        note(f"{path} is marked as processed")


def find_workload(
    store: Store, request: ModelSpec, mode: Mode, asked: Sequence[str], *, harvest: bool = True
) -> Stored:
    """Return the workload that a request means, harvested now where it is not stored.

    For a mode that compiles, nothing is harvested: only a model's device shows what it is compiled
    to. `asked` are the words of a command that mean the request.
    """
    policy = HarvestPolicy(harvest=harvest and mode not in COMPILED_MODES)
    try:
        return workload_of(store, request, policy)
    except NotHarvestedError as error:
        hint = ["opdb", "harvest", *asked, *database_option(store)]
        then = ""
        if mode in COMPILED_MODES:
            hint += ["--mode", "compile"]
            then = " on the device, then opdb bench fused enter_graph"
        raise InputError(f"{error}; to add it: {shlex.join(hint)}{then}") from error


def database_option(store: Store) -> list[str]:
    """Return the option that names a database; none of the one that is opened without it."""
    from opdb.store import default_url

    return [] if store.url == default_url() else ["--db", store.location]


def stored_workload(store: Store, request: ModelSpec) -> Workload | None:
    """Return the stored workload that a request means; None where there is none.

    A size that the request does not say is the model's own.
    """
    alike = _alike(store, request)
    possible = [each for each in alike if request.batch_size in (None, each.batch_size)]
    if request.phase == "decode":
        if possible:
            return possible[0]  # one token: nothing else tells them apart
        sizes = sizes_of_pass(request)
        steps = other_sizes(store.workloads, request)
        return next((each for each in steps if stands_for(each, sizes)), None)
    if request.inputs is not None:
        return _of_inputs(possible, request)
    if request.input_size is not None:
        return next((each for each in possible if size_of(each) == tuple(request.input_size)), None)
    usual = [(each, is_usual(each.source, each.name, size_of(each))) for each in possible]
    if known := [each for each, is_so in usual if is_so]:
        return known[0]
    if unsure := [each for each, is_so in usual if is_so is None]:
        return _of_inputs(unsure, request)
    return None


def _alike(store: Store, request: ModelSpec) -> list[Workload]:
    """Return the stored workloads that are as requested, their inputs and batch apart."""
    return [
        each
        for each in _named(store.workloads, request)
        if each.inputs.get("training") == request.training
        and each.autocast == request.autocast
        and each.inputs.get("generation") == request.generation
    ]


def other_sizes(read: Callable[..., Sequence[Workload]], request: ModelSpec) -> list[Workload]:
    """Return the stored prefills or steps of the requested model and cache, at all their sizes.

    `read` is `Store.workloads`.
    """
    if request.generation is None:
        return []
    return [
        each
        for each in _named(read, request)
        if _but_lengths(each.inputs["generation"]) == _but_lengths(request.generation)
    ]


def _named(read: Callable[..., Sequence[Workload]], request: ModelSpec) -> list[Workload]:
    """Return the stored workloads of a request's model, dtype, memory format and phase.

    Where it leaves something to a model of one's own, they are those that have it as it was built.
    """
    found = read(
        request.name, dtype=request.dtype, memory_format=request.memory_format, phase=request.phase
    )
    return [
        each
        for each in found
        if request.source in (None, each.source)
        and all(getattr(request, name) is not None for name in each.inputs.get("built", {}))
    ]


def sizes_of_pass(request: ModelSpec) -> dict[str, int]:
    """Return the sizes of a requested prefill or step, by the names of `opdb.growth.Sizes`."""
    found = {"batch": request.batch_size or 1}
    if request.phase == "decode":
        found["context"] = request.filled
    else:
        found["prompt"] = request.new_tokens
    length = (request.generation or {}).get("cache_length")
    return found if length is None else {**found, "length": length}


def _but_lengths(generation: Json) -> Json:
    return {n: value for n, value in generation.items() if n not in ("context", "cache_length")}


def _of_inputs(possible: Sequence[Workload], request: ModelSpec) -> Workload | None:
    """Return the one that takes just the inputs that the model would be given here.

    Where that cannot be told here, for want of a library perhaps, a single one is taken to be it.
    """
    if not possible:
        return None
    if len(possible) == 1 and possible[0].source == "python" and request.inputs is None:
        return possible[0]  # its code says what its inputs are
    try:
        from opdb.models import load_to_look

        inputs = load_to_look(request).inputs
    except (ImportError, InputError) as error:
        if len(possible) == 1:
            return possible[0]
        stored = "; ".join(describe(each, usual_size=True) for each in possible)
        raise InputError(
            f"{request.name} was harvested for several inputs ({stored}); choose with "
            f"--input-size or --batch-size: which it takes unless told cannot be said here: {error}"
        ) from error
    given = {**inputs, "training": None}
    return next((each for each in possible if {**each.inputs, "training": None} == given), None)


def _unknown(store: Store, request: ModelSpec) -> InputError:
    stored = store.workload_names()
    if request.name in stored:
        return InputError(
            f"{_unharvested(store, request)}; unknown model {request.name!r} in the packages "
            f"installed here {unknown_hint()}"
        )
    return unknown_model(request.name, stored)


def _unharvested(store: Store, request: ModelSpec) -> str:
    found = [describe(each, usual_size=True) for each in store.workloads(request.name)[:8]]
    only = f", only for: {'; '.join(dict.fromkeys(found))}" if found else f" into {store.location}"
    return f"{request.name} was not harvested for {describe(request, usual_size=True)}{only}"


def harvest_notes(stored: Stored, location: str | None = None) -> list[str]:
    """What is unusual about a workload; with the database's `location`, that it was harvested."""
    if stored.harvest_s is None:
        return []
    found, workload = stored.found, stored.workload
    name, notes = f"{workload.name}, {describe(workload)}", []
    if location is not None:
        saved = (
            f"stored in {location}" if stored.unsaved is None else f"not stored: {stored.unsaved}"
        )
        took = show(stored.harvest_s, "s")
        notes.append(f"{name}: not in the database, harvested now ({took}), {saved}")
    notes += [f"{name}: {note}" for note in found.notes]
    if found.failure is not None:
        notes.append(
            f"{name} asks whether it is being captured in a CUDA graph, and what it calls then is "
            "not known, so that mode graph is predicted from what it calls in eager: "
            f"{found.failure}"
        )
    return notes


def located(workload: Workload, request: ModelSpec) -> tuple[Sequence[Call], float | None]:
    """Return a workload's calls with their modules' paths, and the seconds that a harvest took.

    What is published has no paths, so it is harvested anew. Nobody says that these are the same
    calls: whoever joins them to what is stored compares them.
    """
    if all(call.path is not None for call in workload.calls):
        return workload.calls, None
    from opdb.harvest.passes import harvest_in_both

    started_s = time.monotonic()
    found = harvest_in_both(checked(request))
    here = found.captured if workload.captured and found.captured else found.workload
    return here.calls, time.monotonic() - started_s


# One digest of all that a harvest depends on: with the same digest, it finds the same calls.

_OWN = Path(__file__).parents[1]
_INSTALLED = {"site-packages", "dist-packages"}

_RUN = ("__main__", "__mp_main__")
"""Names of the program that asks: the second is the same module, where multiprocessing was
imported."""

_READ = (
    *("ACCELERATE_", "AOT", "ATEN_", "CUTLASS", "ENABLE_", "FLASH_", "HF_", "INDUCTOR", "PYTORCH"),
    *("TENSORIFY_", "TORCH", "TRANSFORMERS_", "TRITON_", "USE_", "XLA_"),
)
"""Prefixes of the environment variables that configure torch, transformers and Triton."""

_NOT_READ = ("CACHE", "TOKEN")
"""Parts of the names of variables that say where files are, or who asks; torch sets some."""


def fingerprint(request: ModelSpec) -> str | None:
    """Return the SHA-256 (hex) of a request and of the code that would be harvested, as it is here.

    The code is Python, opdb, and every distribution that is installed, by its version. Environment
    variables that configure it, and whether there is a GPU, count too. None where that is not all:
    a model from an import path may change at any time, and so may modules that were imported from
    elsewhere than where packages are installed, such as those of a checkout.
    """
    import torch

    valid = checked(request)
    if is_import_path(valid.name) or not _is_installed():
        return None
    variables = sorted(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith(_READ) and not any(part in name for part in _NOT_READ)
    )
    parts = (valid, _code(), variables, torch.cuda.is_available())
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _is_installed() -> bool:
    """Whether every module that was imported until now is Python's, opdb's, or was installed."""
    roots = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(_OWN)}
    folders = tuple(root + os.sep for root in roots)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if name in _RUN or not isinstance(file, str) or not file.endswith((".py", ".pyc")):
            continue
        if not (file.startswith(folders) or _INSTALLED.intersection(Path(file).parts)):
            return False
    return True


@cache
def _code() -> str:
    """Return what identifies the code there is: opdb's text, the version of all else."""
    own = b"".join(file.read_bytes() for file in sorted(_OWN.rglob("*.py")))
    packages = (Path(folder).glob("*.*-info") for folder in sys.path)
    installed = sorted(each.name for found in packages for each in found)
    return repr((hashlib.sha256(own).hexdigest(), sys.version, platform.machine(), installed))
