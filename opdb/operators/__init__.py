"""The one registry of operators: describe a call as a configuration, build a call from one.

An operator is a function with a named signature; a module is a form of it. `nn.Conv2d` and
`F.conv2d` on a parameter describe as the same `conv2d`. Integer ranges ({"range": [low, high]})
leave `high` out, as torch.randint does; {"same": i} counts every tensor of the call, in the order
of the kind's signature.
"""

from __future__ import annotations

from opdb.operators.backward import BuiltBackward
from opdb.operators.build import build
from opdb.operators.call import BuiltCall
from opdb.operators.describe import (
    describe_function,
    describe_module,
    is_metadata,
    is_operator_module,
)
from opdb.operators.encoding import NoNotes, TensorNotes, dtype_name, dtype_of
from opdb.operators.functions import function_name
from opdb.operators.update import BuiltUpdate, describe_update, make_optimizer
from opdb.operators.values import materialize

__all__ = [
    "BuiltBackward",
    "BuiltCall",
    "BuiltUpdate",
    "NoNotes",
    "TensorNotes",
    "build",
    "describe_function",
    "describe_module",
    "describe_update",
    "dtype_name",
    "dtype_of",
    "function_name",
    "is_metadata",
    "is_operator_module",
    "make_optimizer",
    "materialize",
]
