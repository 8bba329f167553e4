"""Hardware counters of single calls: programs under Nsight Compute, profiles stored."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opdb.bench.platform import Platform
from opdb.bench.profiled import ProfilingJob
from opdb.bench.scratch import temporary_folder
from opdb.bench.session import now
from opdb.counters.metrics import Definition, metrics_in
from opdb.counters.ncu import Ncu
from opdb.counters.report import read_report
from opdb.errors import CannotMeasureError
from opdb.records import Configuration
from opdb.store import Store

AT_ONCE = 64
"""Calls that one program makes: what it saw is stored before the next one begins."""

ENDING = ".ncu-rep"
"""What Nsight Compute's reports end in; it adds it where it is missing."""


@dataclass(frozen=True)
class Lens:
    """How calls are profiled: the tool, the metrics, and where to keep its reports."""

    tool: Ncu
    definition: Definition
    keep: Path | None = None

    def report(self, number: int, folder: Path) -> Path:
        """Return the file of a report: the one to keep, those after the first numbered."""
        if self.keep is None:
            return folder / f"report-{number}{ENDING}"
        stem = self.keep.name.removesuffix(ENDING)
        return self.keep.with_name(stem + (f"-{number}" if number > 1 else "") + ENDING)


@dataclass
class ProfilingResult:
    """What was stored, the reports that were kept, and why calls have no profile, by key."""

    profiles: int = 0
    reports: list[Path] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def profile_calls(
    store: Store,
    platform: Platform,
    lens: Lens,
    configurations: Sequence[Configuration],
    *,
    done: Callable[[int], None] = lambda _: None,
) -> ProfilingResult:
    """Run calls under the profiler, some at a time, and store what it saw of each.

    `done` is called with how many more were made.

    Raises:
        CannotMeasureError: the counters cannot be read here.
        InputError: what the profiler prints cannot be read.
    """
    outcome = ProfilingResult()
    store.save_board(platform.device, platform.board)
    store.save_configurations(configurations)
    for number, start in enumerate(range(0, len(configurations), AT_ONCE), start=1):
        some = configurations[start : start + AT_ONCE]
        with temporary_folder() as folder:
            _profile(store, platform, lens, some, (number, Path(folder)), outcome)
        done(len(some))
    return outcome


def _profile(
    store: Store,
    platform: Platform,
    lens: Lens,
    configurations: Sequence[Configuration],
    place: tuple[int, Path],
    outcome: ProfilingResult,
) -> None:
    number, folder = place
    report, result = lens.report(number, folder), folder / "result.json"
    job = ProfilingJob(
        platform.torch_device,
        platform.board.uuid,
        platform.board.device,
        now(),
        [c.json for c in configurations],
        str(result),
    )
    job.write(folder / "job.json")
    program = [sys.executable, "-m", "opdb.bench.profiled", str(folder / "job.json")]
    try:
        text = lens.tool.profile(program, metrics_in(lens.definition), report)
    except CannotMeasureError:
        reasons = _reasons(result)
        if not reasons or None in reasons.values():
            raise
        # no call could be made: there was nothing to profile
        outcome.missing |= {key: str(reason) for key, reason in reasons.items()}
        return
    reasons = _reasons(result)
    if len(reasons) < len(configurations):
        raise CannotMeasureError("the program under ncu ended before its last call")
    read = read_report(text, lens.tool.name)
    made = [c for c in configurations if reasons[c.key] is None]
    profiles = read.profiles(
        made,
        platform.board,
        lens.definition,
        environment={**platform.environment, "ncu": lens.tool.version},
        measured_at=job.begun_at,
    )
    store.save_profiles(profiles)
    outcome.profiles += len(profiles)
    outcome.reports += [report] if lens.keep is not None else []
    outcome.missing |= {key: reason for key, reason in reasons.items() if reason is not None}
    seen = {profile.configuration for profile in profiles}
    outcome.missing |= {c.key: "it launched no kernel" for c in made if c.key not in seen}


def _reasons(result: Path) -> dict[str, str | None]:
    """Return what came of a program's calls; nothing where it did not end."""
    if not result.exists():
        return {}
    reasons: dict[str, str | None] = json.loads(result.read_text())
    return reasons
