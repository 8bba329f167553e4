"""What a bench is asked for."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from opdb.algorithms.names import Algorithm
from opdb.bench import forced
from opdb.bench.allocation import SUM_PRECISION
from opdb.bench.plan import DUPLICATE_SHARE, ROUNDS, PlanRequest
from opdb.bench.platform import current_settings
from opdb.derive.precision import PRECISION
from opdb.records import Access, Json


@dataclass(frozen=True)
class BenchRequest:
    """A request to bench: kinds (None: all) on a device, for at most a number of seconds.

    `this_board` asks what this very board lacks, whatever other boards of the device have.
    `rounds` good visits are wanted of each configuration, whatever its interval; where that is
    one, some are visited twice, so that there are intervals. None: one of what models call, and
    further ones until the sampling parts of their sums' 95 % intervals are within `sum_precision`.
    `precision` is the half width of the 95 % interval, as a share of the energy, that ends the
    rounds of any other configuration; `duplicates` the share of configurations measured twice over.
    `access` is what calls find in the caches; no cost rests on any but a model's. `resident_bytes`
    is how much the L2 keeps from one pass to the next; None: as the device's size suggests.
    `configurations` (keys), where given, are all that is benched, and are visited in that order.
    `workloads` (keys), where given, are those whose sums are to be precise, as far as the board has
    measured them, and of whose calls host times are taken; None: all of which it has measured every
    operator, and all. `wholes` says what a whole pass of some of these is likely to take, in
    seconds and joules: where the board has measured a part of it, the part need not be more precise
    than the whole is to be.
    `algorithms`, where given, are those that convolutions are to take, and nothing else is benched;
    what is measured so is kept apart from what torch chooses, and has no duplicates.
    `host_times` says whether host times of calls are taken beside visits: a CUDA graph needs none.
    """

    kinds: Collection[str] | None = None
    device: str | None = None
    max_s: float | None = None
    retry: bool = False
    this_board: bool = False
    rounds: int | None = ROUNDS
    precision: float = PRECISION
    sum_precision: float = SUM_PRECISION
    duplicates: float = DUPLICATE_SHARE
    access: Access = "model"
    resident_bytes: float | None = None
    configurations: Sequence[str] | None = None
    workloads: Collection[str] | None = None
    wholes: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    algorithms: tuple[Algorithm, ...] = ()
    host_times: bool = True
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**31))

    @property
    def settings(self) -> list[dict[str, Json]]:
        """The backend settings under each of the algorithms; the present ones where none is."""
        present = current_settings()
        return [{**present, **each.setting} for each in self.algorithms] or [present]

    @property
    def planned(self) -> PlanRequest:
        """The part of it that concerns the plan."""
        return PlanRequest(
            kinds={forced.KIND} if self.algorithms else self.kinds,
            seed=self.seed,
            retry=self.retry,
            this_board=self.this_board,
            duplicates=0.0 if self.algorithms else self.duplicates,
            rounds=self.rounds,
            access=self.access,
            resident_bytes=self.resident_bytes,
            configurations=self.configurations,
        )
