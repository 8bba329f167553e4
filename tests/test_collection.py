"""pytest collects every test file of the tree; what it leaves out, it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.paths import ROOT, python_path

pytestmark = pytest.mark.slow

LISTING = """
import sys
import pytest

class EmptyModule(pytest.Module):
    def collect(self):
        return []

class Listing:
    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path, parent):
        print("FILE", module_path)
        return EmptyModule.from_parent(parent, path=module_path)

options = ["--collect-only", "-m", "not slow", "-p", "no:xdist", "-p", "no:cacheprovider"]
sys.exit(pytest.main(options, [Listing()]))
"""
"""pytest as it is configured, naming each test file that it would import and importing none."""


def test_pytest_collects_every_test_file_and_says_what_it_leaves_out() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LISTING],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        timeout=300,
    )
    collected = {Path(line[5:]) for line in ran.stdout.splitlines() if line.startswith("FILE ")}
    there = set((ROOT / "tests").rglob("test_*.py"))
    gpu = {path for path in there if (ROOT / "tests" / "gpu") in path.parents}
    without_gpu = not torch.cuda.is_available()
    assert gpu and len(there) > len(gpu)
    assert collected == (there - gpu if without_gpu else there), ran.stderr
    told = f"tests/gpu was not collected: {len(gpu)} files need an NVIDIA GPU"
    assert (told in ran.stdout) == without_gpu
    assert "slow tests were left out: make check-all runs them" in ran.stdout
