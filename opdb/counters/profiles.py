"""From what a profiler saw of a program's calls to profiles of their configurations."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from opdb.counters.metrics import Definition
from opdb.counters.report import Report
from opdb.records import Board, Configuration, Profile
from opdb.settings import DEFAULT_SETTINGS, relevant_setting


def profiles_of(
    report: Report,
    configurations: Iterable[Configuration],
    board: Board,
    definition: Definition,
    *,
    environment: Mapping[str, str | None],
    measured_at: str,
) -> list[Profile]:
    """Return a profile of each of the configurations that the report saw a kernel of.

    Backend settings are those of a fresh torch process, in which the calls were made.
    """
    return [
        Profile(
            id=uuid.uuid4().hex,
            board=board,
            configuration=configuration.key,
            setting=relevant_setting(configuration.kind, DEFAULT_SETTINGS),
            measured_at=measured_at,
            environment=dict(environment),
            definition=definition,
            kernels=tuple(report.calls[configuration.key]),
        )
        for configuration in configurations
        if configuration.key in report.calls
    ]
