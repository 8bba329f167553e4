"""The distribution that opdb comes as, and the command that installs its optional parts."""

from __future__ import annotations

import shlex
from pathlib import Path

DISTRIBUTION = "opdb-torch"
"""The distribution's name; `opdb` on PyPI is another project. Package and command are `opdb`."""


def install(extra: str = "", *, root: Path = Path(__file__).parents[1]) -> str:
    """Return the command that installs opdb, or one of its extras, from the clone.

    opdb is not on PyPI: the command names the clone that this package runs from by its path. Where
    it was installed from a wheel, the command names what the extra, or without one a new model,
    needs besides; else it says that a clone is needed. `root` is the folder above the package.
    """
    wanted = f"[{extra}]" if extra else ""
    if (root / "pyproject.toml").exists():
        return f"pip install -e {shlex.quote(f'{root}{wanted}')}"
    if published(root) is not None:
        return shlex.join(["pip", "install", *_of_wheel(extra)])
    return f"pip install -e {shlex.quote(f'.{wanted}')} in a clone of opdb"


def published(root: Path) -> Path | None:
    """Return the folder of the published sets that a wheel brought; None where none did."""
    folder = root / "opdb" / "published"
    return folder if folder.is_dir() else None


def _of_wheel(extra: str) -> list[str]:
    """Return the packages that an extra of an installed wheel needs; without one, torch's."""
    if not extra:
        return ["torch", "torchvision"]
    from importlib.metadata import requires

    split = (each.partition(";") for each in requires(DISTRIBUTION) or [])
    return [needed.strip() for needed, _, marker in split if f'extra == "{extra}"' in marker]
