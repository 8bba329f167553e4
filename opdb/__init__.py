"""opdb: what a PyTorch model costs in time and energy, operator by operator.

    from opdb import ModelRequest, Predictor, choose_device, open_store
    from opdb.harvest import harvest

    workload = harvest(ModelRequest("resnet152", batch_size=32))
    with open_store() as store:
        answer = Predictor(store, choose_device(store, None)).answer(workload, "eager")
    print(answer.prediction.time_s, answer.prediction.energy_j)

The names here are loaded when they are first asked for, and none of them imports torch. What does
is asked of its module: `opdb.harvest.harvest`, `opdb.bench.run.bench`, `opdb.bench.model.measure`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opdb.compose import Prediction
    from opdb.errors import OpdbError
    from opdb.models import ModelRequest
    from opdb.predict import Answer, Predictor, choose_device
    from opdb.records import Call, Configuration, Cost, Visit, Workload
    from opdb.store import Store, open_store

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Call",
    "Configuration",
    "Cost",
    "ModelRequest",
    "OpdbError",
    "Prediction",
    "Predictor",
    "Store",
    "Visit",
    "Workload",
    "__version__",
    "choose_device",
    "open_store",
]

_HOMES = {
    "Answer": "opdb.predict",
    "Call": "opdb.records",
    "Configuration": "opdb.records",
    "Cost": "opdb.records",
    "ModelRequest": "opdb.models",
    "OpdbError": "opdb.errors",
    "Prediction": "opdb.compose",
    "Predictor": "opdb.predict",
    "Store": "opdb.store",
    "Visit": "opdb.records",
    "Workload": "opdb.records",
    "choose_device": "opdb.predict",
    "open_store": "opdb.store",
}

if not TYPE_CHECKING:  # a type checker is to know these names and no others

    def __getattr__(name: str) -> object:
        """Load one of the names above from its module."""
        if name not in _HOMES:
            raise AttributeError(f"module 'opdb' has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        return __all__
