"""Print, as JSON, what the direct convolution makes of every case in Triton's interpreter.

A program of its own: the interpreter is chosen when Triton is first imported.
"""

from __future__ import annotations

import json

import torch

from opdb.algorithms.convolution import run
from tests.algorithms.cases import CASES, error


def main() -> None:
    """Run the cases."""
    found = {}
    for case in CASES:
        call = case.call("direct")
        output = run(*call)
        plain = torch.nn.functional.conv2d(*call[:-1])
        found[case.name] = {
            "error": error(output, call),
            "shape": list(output.shape),
            "strides_as_torchs": output.stride() == plain.stride(),
        }
    call = CASES[7].call("direct")
    checked = torch.library.opcheck(torch.ops.opdb.conv2d_forward.default, tuple(call))
    print(json.dumps({"cases": found, "opcheck": checked}))


if __name__ == "__main__":
    main()
