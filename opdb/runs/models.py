"""Runs of models in a mode, as the questions about whole models ask for them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from opdb.models import ModelRequest
from opdb.records import Json, Mode
from opdb.runs.table import Policy

if TYPE_CHECKING:
    from opdb.store import RunState, Store


@dataclass(frozen=True)
class ModelSpec:
    """One run of a model in a mode, on any of these boards (UUIDs).

    `workload` is the key under which the run is stored. Two processes that ask for the same run on
    the same boards make it once; a run on other boards is another run.
    """

    request: ModelRequest
    workload: str
    mode: Mode
    boards: tuple[str, ...]

    why_not: ClassVar[None] = None

    @property
    def key(self) -> str:
        """The text that identifies the run; a claim of it has this name."""
        return f"run {self.mode} on {','.join(sorted(self.boards))} {self.workload}"


@dataclass(frozen=True)
class ModelPolicy(Policy[ModelSpec]):
    """Count the runs of these boards, made as boards of these devices under one setting.

    A board under another power limit is a board of another device. `environment` is what the
    campaigns must say of themselves, such as the version of torch, and `facts` what the runs must
    say. The runs in `ignored` (ids) do not count.
    """

    boards: tuple[str, ...]
    environment: Mapping[str, str | None] = field(default_factory=dict)
    setting: Mapping[str, Json] = field(default_factory=dict)
    facts: Mapping[str, Json] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()

    def runs(self, store: Store, spec: ModelSpec | None = None) -> list[RunState]:
        """Return the runs that count, oldest first; of one spec, or all."""
        workload, mode = (None, None) if spec is None else (spec.workload, spec.mode)
        found = [
            run
            for board in self.boards
            for run in store.run_states(workload, board=board, mode=mode, setting=self.setting)
            if run.device in self.devices and run.id not in self.ignored
        ]
        if self.facts:
            found = [run for run in found if _has(run.facts, self.facts)]
        if self.environment:
            environments = {campaign.id: campaign.environment for campaign in store.campaigns()}
            found = [run for run in found if _has(environments[run.campaign], self.environment)]
        return found

    def without_stored(self, store: Store) -> Self:
        """Return the policy that counts only runs that are not stored yet.

        So a run is made however many are stored; but not twice, where two processes ask for it at
        the same time.
        """
        return replace(self, ignored=frozenset(run.id for run in ModelPolicy.runs(self, store)))

    def scope(self, device: str) -> str:
        """Return the name of the list in which runs on a device (slug) are claimed."""
        return f"runs {device}"

    def identity(self, spec: ModelSpec) -> Hashable:
        """Return the workload and mode of a spec."""
        return spec.workload, spec.mode

    def run_identity(self, run: RunState) -> Hashable:
        """Return the workload and mode of a run."""
        return run.workload, run.mode


def _has(found: Mapping[str, Json], wanted: Mapping[str, Json]) -> bool:
    """Return whether each wanted value is there; None is wanted of what may be missing."""
    return all(found.get(name) == value for name, value in wanted.items())
