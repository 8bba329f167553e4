"""The frozen records that every stage exchanges.

What to run (`Configuration`, `Workload`) is kept apart from what was seen (`Visit`, `HostVisit`,
`ModelRun`) and from what is derived (`Cost`). Quantities are base SI with the unit in the name.
Nothing here imports torch or a database.
"""

from __future__ import annotations

from opdb.records.board import (
    Board,
    BoardCalibration,
    Calibration,
    Campaign,
    Device,
    Host,
    MeterTest,
    Series,
    Trace,
)
from opdb.records.cost import (
    Cost,
    OperatingPoint,
    Quantity,
)
from opdb.records.measurement import (
    HostVisit,
    KernelCounts,
    ModelRun,
    Neighbours,
    Profile,
    Stretch,
    Visit,
)
from opdb.records.words import (
    ALGORITHM_SETTING,
    CAPTURED_MODE,
    COMPILED_MODES,
    CONFIGURATION_FORMAT,
    ELSEWHERE,
    GRADIENTS,
    WORKLOAD_FORMAT,
    Access,
    Form,
    Json,
    Mode,
    Outcome,
    Outputs,
    Phase,
    Role,
    Weights,
    canonical_json,
    content_key,
    is_forced,
)
from opdb.records.workload import (
    Call,
    Configuration,
    Workload,
)

__all__ = [
    "ALGORITHM_SETTING",
    "CAPTURED_MODE",
    "COMPILED_MODES",
    "CONFIGURATION_FORMAT",
    "ELSEWHERE",
    "GRADIENTS",
    "WORKLOAD_FORMAT",
    "Access",
    "Board",
    "BoardCalibration",
    "Calibration",
    "Call",
    "Campaign",
    "Configuration",
    "Cost",
    "Device",
    "Form",
    "Host",
    "HostVisit",
    "Json",
    "KernelCounts",
    "MeterTest",
    "Mode",
    "ModelRun",
    "Neighbours",
    "OperatingPoint",
    "Outcome",
    "Outputs",
    "Phase",
    "Profile",
    "Quantity",
    "Role",
    "Series",
    "Stretch",
    "Trace",
    "Visit",
    "Weights",
    "Workload",
    "canonical_json",
    "content_key",
    "is_forced",
]
