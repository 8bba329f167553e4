"""Whether a model launched the kernels that its operators launched: by name and count."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from opdb.records import ModelRun, Workload

_GENERATED = re.compile(r"(triton_[a-z]+)_fused.*")
"""A kernel that inductor generated: its sort, then the operators around it and a running number."""


@dataclass(frozen=True)
class Launches:
    """The kernels of one pass of a model against those of its operators' visits.

    `model` counts what the model launched and its operators did not, `operators` the other way
    round, both by kernel name. `unseen` are configurations whose kernels no visit saw.
    """

    model: Mapping[str, int]
    operators: Mapping[str, int]
    launched: int
    unseen: tuple[str, ...]

    @property
    def agree(self) -> bool:
        """Whether the same kernels ran, and each operator's are known."""
        return not self.model and not self.operators and not self.unseen


def compare_launches(
    workload: Workload, run: ModelRun, of_operators: Mapping[str, Mapping[str, int]]
) -> Launches | None:
    """Compare a run's kernels with those of its operators' visits (by configuration key).

    None where the run's kernels were not seen. Those that inductor generates count by their sort
    (`triton_poi` …): the rest of their names says where in a graph they stand. An operator that
    restores nothing and launches nothing counts as seen, with no kernel.
    """
    if run.kernels is None:
        return None
    together: Counter[str] = Counter()
    unseen = []
    for configuration, count in workload.occurrences().items():
        if configuration.key not in of_operators:
            unseen.append(configuration.key)
            continue
        for name, launches in of_operators[configuration.key].items():
            together[_sort_of(name)] += count * launches
    model: Counter[str] = Counter()
    for name, launches in run.kernels.items():
        model[_sort_of(name)] += launches
    return Launches(dict(model - together), dict(together - model), model.total(), tuple(unseen))


def _sort_of(name: str) -> str:
    """Return a kernel's name; of one that inductor generated, its sort."""
    generated = _GENERATED.fullmatch(name)
    return generated[1] if generated else name
