"""Operators in torch: describe a call as a configuration, build a call from one.

An operator is a function with a named signature; a module is a form of it. `nn.Conv2d` and
`F.conv2d` on a parameter describe as the same `conv2d`. Integer ranges ({"range": [low, high]})
leave `high` out, as torch.randint does; {"same": i} counts every tensor of the call, in the order
of the kind's signature.

How a callable finds its kind, in this order:

1. `describe.is_metadata`: asking for a shape or a dtype is not an operator (`functions.METADATA`).
2. A module: the entry of its class in `describe.FORMS` names the kind and where its arguments are.
3. An operator of the dispatcher ("torchvision::nms", "aten::native_layer_norm"):
   `functions.CUSTOM`, or as the function of its name ("aten::relu_" as `Tensor.relu_`).
4. A function that a signature cannot bind (`torch.max` of one tensor, or of two), or such an
   operator ("aten::convolution"): `functions.OVERLOADS`.
5. Any other function: the kind whose declaration names it, as the text `Kind.functions`
   (`opdb/kinds/`), which `functions.forms_by_function` resolves.

`Kind.signature` then orders the arguments, and `Kind.canonical` makes equal calls equal text. Back
from a configuration, `build` calls the first callable that its kind names; `build.SPECIAL` has the
kinds that are called in another way. What a group of aten operators may call is apart, in the
reviewed table of `fused.py`.
"""

from __future__ import annotations

from opdb.models.inputs import dtype_name, dtype_of, materialize
from opdb.operators.build import build
from opdb.operators.call import (
    BuiltBackward,
    BuiltCall,
    BuiltUpdate,
    describe_update,
    make_optimizer,
)
from opdb.operators.describe import (
    describe_function,
    describe_module,
    is_metadata,
    is_operator_module,
)
from opdb.operators.encoding import TensorNotes
from opdb.operators.functions import function_name

__all__ = [
    "BuiltBackward",
    "BuiltCall",
    "BuiltUpdate",
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
