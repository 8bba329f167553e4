"""Grid files: combinations of an operator's arguments, as configurations to measure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opdb.errors import InputError
from opdb.records import Json
from opdb.runs.progress import Display
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.grid import Expansion
    from opdb.store import Store


@dataclass(frozen=True)
class BenchedGrid:
    """A grid file and the calls that its combinations came to."""

    path: Path
    found: Expansion

    @classmethod
    def of(cls, path: Path, *, large: bool = False, display: Display | None = None) -> BenchedGrid:
        """Read a grid file and make its calls; `large` allows more than 10,000 combinations.

        Raises:
            InputError: it is no grid, asks for too many combinations, or none of them is a call.
        """
        from opdb.grid import MOST, expand, load_grids, steps

        grids = load_grids(path)
        asked = steps(grids)
        if asked > MOST and not large:
            raise InputError(
                f"{path}: {asked} combinations, more than {MOST}; give fewer values or a sample "
                "(sample: 400), or say --yes"
            )
        with (display or Display()).progress(asked, "grid") as shown:
            found = expand(grids, shown.done)
        if not found.calls:
            why = "; ".join(_dropped(found))
            raise InputError(f"{path}: none of its combinations can be called: {why}")
        return cls(path, found)

    @property
    def keys(self) -> list[str]:
        """The keys of its configurations, in its order."""
        return [call.configuration.key for call in self.found.calls]

    @property
    def document(self) -> Json:
        """What became of its combinations."""
        found = self.found
        return {
            "file": str(self.path),
            "combinations": found.combinations,
            "sample": found.asked,
            "tried": found.tried,
            "configurations": len(found.calls),
            "repeated": found.repeated,
            "dropped": [
                {"reason": each.reason, "combinations": each.count, "first": dict(each.example)}
                for each in found.dropped
            ],
        }

    def save(self, store: Store, say: Callable[[str], None]) -> None:
        """Save its configurations and say what became of its combinations."""
        for line in self.lines():
            say(line)
        store.save_configurations([call.configuration for call in self.found.calls])

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb bench --grid FILE --dry-run --json` prints: all configurations."""
        configurations = [json.loads(call.configuration.json) for call in self.found.calls]
        return {"grid": self.document, "configurations": configurations}

    def lines(self) -> Iterator[str]:
        """Yield what became of its combinations, in words."""
        found = self.found
        line = (
            f"{self.path}: {plural(len(found.calls), 'configuration')} of "
            f"{plural(found.combinations, 'combination')}"
        )
        if found.tried < found.combinations:
            line += f", {found.tried} tried"
        if found.asked is not None and len(found.calls) < found.asked:
            line += f"; no more were found for the sample of {found.asked}"
        yield line
        if found.repeated:
            yield f"  {found.repeated} came to a configuration that was there already"
        yield from (f"  dropped {line}" for line in _dropped(found))


def _dropped(found: Expansion) -> Iterator[str]:
    """Yield each reason why combinations were dropped, how many they are, and the first."""
    for each in found.dropped:
        first = ", ".join(f"{name} {_shown(value)}" for name, value in each.example.items())
        yield f"{each.count}: {each.reason}" + (f" (the first: {first})" if first else "")


def _shown(value: Json) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {part:g}" for name, part in value.items())
    return "normal" if value is None else str(value)
