"""The modules that commands use and that are heavy to import: each is imported when first used.

`opdb --help` and a shell that completes a word import the commands, and need none of these.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opdb import grid, store, workers
    from opdb.bench import calibrate, driver, harvests, model, session, visit
    from opdb.bench import plan as bench_plan
    from opdb.bench import run as bench_run
    from opdb.harvest import passes
    from opdb.plan import loop, survey
    from opdb.predict import predictor
    from opdb.store import opening

__all__ = [
    "bench_plan",
    "bench_run",
    "calibrate",
    "driver",
    "grid",
    "harvests",
    "loop",
    "model",
    "opening",
    "passes",
    "predictor",
    "session",
    "store",
    "survey",
    "visit",
    "workers",
]

_ROOMS = {
    "bench": ("calibrate", "driver", "harvests", "model", "session", "visit"),
    "harvest": ("passes",),
    "plan": ("loop", "survey"),
    "predict": ("predictor",),
    "store": ("opening",),
}
_MODULES = {"bench_plan": "bench.plan", "bench_run": "bench.run"}
_MODULES |= {name: f"{room}.{name}" for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"opdb.{_MODULES.get(name, name)}")
