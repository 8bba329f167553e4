"""opdb: what a PyTorch model costs in time and energy, operator by operator.

    import opdb

    opdb.predict("resnet152", batch_size=32)                  # time, energy, interval, coverage
    opdb.predict(module, inputs)                              # an nn.Module at hand
    opdb.compare("resnet50", "convnext_tiny", batch_sizes=(1, 32))
    opdb.harvest("mypackage.models:build")                    # the operators of a model of your own

Each verb does what the command of its name does (`opdb predict`, …) and returns a frozen record
that prints as a table, shows as one in a notebook, and turns into data: `to_dict()` is the
command's --json, `to_frame()` a pandas DataFrame where pandas is installed.

A model that is stored is taken as it is; another one is harvested and stored, which needs torch.
The classes below the verbs are for who wants more than an answer:

    with opdb.open_store() as store:
        found = opdb.workload_of(store, opdb.ModelSpec("resnet152", batch_size=32))
        predictor = opdb.Predictor(store, opdb.choose_device(store, None))
        answer = predictor.answer(found.workload, "eager")

All names are loaded when they are first asked for, and none of them imports torch.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opdb.commands.bench import BenchOptions, bench
    from opdb.commands.build import BuildOptions, build, plan
    from opdb.commands.compare import compare
    from opdb.commands.export import export
    from opdb.commands.generate import generate
    from opdb.commands.harvest import harvest
    from opdb.commands.import_ import load
    from opdb.commands.measure import TrainingOptions, measure
    from opdb.commands.predict import Conditions, predict
    from opdb.commands.show import show
    from opdb.commands.trace import trace
    from opdb.commands.validate import validate
    from opdb.errors import OpdbError
    from opdb.harvest.finding import workload_of
    from opdb.predict.predictor import Predictor, choose_device
    from opdb.spec import ModelSpec
    from opdb.store import open_store
    from opdb.studies.annotate import annotate
    from opdb.studies.report import report

__version__ = "0.1.0"

_NAMES = {
    "opdb.commands.bench": ("BenchOptions", "bench"),
    "opdb.commands.build": ("BuildOptions", "build", "plan"),
    "opdb.commands.compare": ("compare",),
    "opdb.commands.export": ("export",),
    "opdb.commands.generate": ("generate",),
    "opdb.commands.harvest": ("harvest",),
    "opdb.commands.import_": ("load",),
    "opdb.commands.measure": ("TrainingOptions", "measure"),
    "opdb.commands.predict": ("Conditions", "predict"),
    "opdb.commands.show": ("show",),
    "opdb.commands.trace": ("trace",),
    "opdb.commands.validate": ("validate",),
    "opdb.errors": ("OpdbError",),
    "opdb.harvest.finding": ("workload_of",),
    "opdb.predict.predictor": ("Predictor", "choose_device"),
    "opdb.spec": ("ModelSpec",),
    "opdb.store": ("open_store",),
    "opdb.studies.annotate": ("annotate",),
    "opdb.studies.report": ("report",),
}
"""The names of the API by the module that each is loaded from."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "BenchOptions",
    "BuildOptions",
    "Conditions",
    "ModelSpec",
    "OpdbError",
    "Predictor",
    "TrainingOptions",
    "__version__",
    "annotate",
    "bench",
    "build",
    "choose_device",
    "compare",
    "export",
    "generate",
    "harvest",
    "load",
    "measure",
    "open_store",
    "plan",
    "predict",
    "report",
    "show",
    "trace",
    "validate",
    "workload_of",
]


class _Package(ModuleType):
    """The package: its verbs stay functions, though rooms of it have their names.

    Importing `opdb.predict` binds that module as an attribute of the package. `import opdb.predict`
    and `from opdb.predict import …` find the module all the same.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


if not TYPE_CHECKING:  # a type checker is to know these names and no others
    sys.modules[__name__].__class__ = _Package

    def __getattr__(name: str) -> object:
        """Load one of the names above from its module."""
        if name not in _HOMES:
            raise AttributeError(f"module 'opdb' has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        return __all__
