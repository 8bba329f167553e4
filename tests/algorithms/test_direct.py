"""The direct convolution in Triton's interpreter: this file is the program that runs it there.

A program of its own: the interpreter is chosen when Triton is first imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from opdb.algorithms.convolution import run
from tests.algorithms.cases import CASES, EPSILONS, Case, error

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="this torch came without Triton"
    ),
]


@pytest.fixture(scope="module")
def interpreted() -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tests.algorithms.test_direct"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_computes_what_torch_computes(case: Case, interpreted: dict[str, Any]) -> None:
    found = interpreted["cases"][case.name]
    assert found["error"] < EPSILONS[case.dtype]
    assert found["strides_as_torchs"]
    assert found["shape"] == list(case.call("direct").problem().output)


if __name__ == "__main__":
    cases = {}
    for case in CASES:
        call = case.call("direct")
        output, plain = run(call), torch.nn.functional.conv2d(*call[:-1])
        cases[case.name] = {
            "error": error(output, call),
            "shape": list(output.shape),
            "strides_as_torchs": output.stride() == plain.stride(),
        }
    print(json.dumps({"cases": cases}))
