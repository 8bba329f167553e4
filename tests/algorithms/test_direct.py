from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.algorithms.cases import CASES, EPSILONS, Case

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="this torch came without Triton"
    ),
]


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.algorithms.direct_interpreted"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_computes_what_torch_computes(case: Case, interpreted: dict[str, Any]) -> None:
    found = interpreted["cases"][case.name]
    assert found["error"] < EPSILONS[case.dtype]
    assert found["strides_as_torchs"]
    assert found["shape"] == list(case.call("direct").problem().output)


def test_the_operator_is_one_as_torch_wants_it(interpreted: dict[str, Any]) -> None:
    assert set(interpreted["opcheck"].values()) == {"SUCCESS"}
