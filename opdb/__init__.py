"""opdb: what a PyTorch model costs in time and energy, operator by operator.

    import opdb

    opdb.predict("resnet152", batch_size=32)                  # time, energy, interval, coverage
    opdb.compare("resnet50", "convnext_tiny", batch_sizes=(1, 32))
    opdb.harvest("mypackage.models:build")                    # the operators of a model of your own

Each verb does what the command of its name does (`opdb predict`, …) and returns a frozen record
that prints as a table, shows as one in a notebook, and turns into data: `to_dict()` is the
command's --json, `to_frame()` a pandas DataFrame where pandas is installed.

A model that is stored is taken as it is; another one is harvested and stored, which needs torch.
The records and classes below the verbs are for who wants more than an answer:

    with opdb.open_store() as store:
        found = opdb.workload_of(store, opdb.ModelRequest("resnet152", batch_size=32))
        predictor = opdb.Predictor(store, opdb.choose_device(store, None))
        answer = predictor.answer(found.workload, "eager")

All names are loaded when they are first asked for, and none of them imports torch.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opdb.api.annotations import Annotated, annotate
    from opdb.api.benches import Benched, BenchOptions, bench
    from opdb.api.build_sources import BuildOptions
    from opdb.api.builds import BuildReport, build
    from opdb.api.comparisons import Choices, Comparison, compare
    from opdb.api.data import Data, data
    from opdb.api.generations import Generated, generate
    from opdb.api.harvests import Harvested, HarvestOptions, harvest
    from opdb.api.listings import Listing, listing
    from opdb.api.measures import Measured, MeasureOptions, measure
    from opdb.api.plans import MeasuringPlan, plan
    from opdb.api.predicted import Compared, Conditions, Predicted
    from opdb.api.predictions import predict
    from opdb.api.reports import ReportPage, report
    from opdb.api.sets import Exported, Loaded, export, load
    from opdb.api.showing import Look, Showing, show
    from opdb.api.status import Status, status
    from opdb.api.traces import Traced, trace
    from opdb.api.validations import validate
    from opdb.compose import Prediction
    from opdb.errors import OpdbError
    from opdb.lookup.workloads import workload_of
    from opdb.models import ModelRequest
    from opdb.predict import Answer, Predictor, choose_device
    from opdb.predict.figures import Rates
    from opdb.records import Call, Configuration, Cost, Visit, Workload
    from opdb.store import Store, open_store

__version__ = "0.1.0"

_NAMES = {
    "opdb.api.annotations": ("Annotated", "annotate"),
    "opdb.api.benches": ("BenchOptions", "Benched", "bench"),
    "opdb.api.build_sources": ("BuildOptions",),
    "opdb.api.builds": ("BuildReport", "build"),
    "opdb.api.comparisons": ("Choices", "Comparison", "compare"),
    "opdb.api.data": ("Data", "data"),
    "opdb.api.generations": ("Generated", "generate"),
    "opdb.api.harvests": ("HarvestOptions", "Harvested", "harvest"),
    "opdb.api.listings": ("Listing", "listing"),
    "opdb.api.measures": ("MeasureOptions", "Measured", "measure"),
    "opdb.api.plans": ("MeasuringPlan", "plan"),
    "opdb.api.predicted": ("Compared", "Conditions", "Predicted"),
    "opdb.api.predictions": ("predict",),
    "opdb.api.reports": ("ReportPage", "report"),
    "opdb.api.sets": ("Exported", "Loaded", "export", "load"),
    "opdb.api.showing": ("Look", "Showing", "show"),
    "opdb.api.status": ("Status", "status"),
    "opdb.api.traces": ("Traced", "trace"),
    "opdb.api.validations": ("validate",),
    "opdb.compose": ("Prediction",),
    "opdb.errors": ("OpdbError",),
    "opdb.lookup.workloads": ("workload_of",),
    "opdb.models": ("ModelRequest",),
    "opdb.predict": ("Answer", "Predictor", "choose_device"),
    "opdb.predict.figures": ("Rates",),
    "opdb.records": ("Call", "Configuration", "Cost", "Visit", "Workload"),
    "opdb.store": ("Store", "open_store"),
}
"""The names of the API by the module that each is loaded from."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Annotated",
    "Answer",
    "BenchOptions",
    "Benched",
    "BuildOptions",
    "BuildReport",
    "Call",
    "Choices",
    "Compared",
    "Comparison",
    "Conditions",
    "Configuration",
    "Cost",
    "Data",
    "Exported",
    "Generated",
    "HarvestOptions",
    "Harvested",
    "Listing",
    "Loaded",
    "Look",
    "MeasureOptions",
    "Measured",
    "MeasuringPlan",
    "ModelRequest",
    "OpdbError",
    "Predicted",
    "Prediction",
    "Predictor",
    "Rates",
    "ReportPage",
    "Showing",
    "Status",
    "Store",
    "Traced",
    "Visit",
    "Workload",
    "__version__",
    "annotate",
    "bench",
    "build",
    "choose_device",
    "compare",
    "data",
    "export",
    "generate",
    "harvest",
    "listing",
    "load",
    "measure",
    "open_store",
    "plan",
    "predict",
    "report",
    "show",
    "status",
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
