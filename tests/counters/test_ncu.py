"""Every option that is given to Nsight Compute is one that it has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from opdb.counters.ncu import Ncu, elsewhere, find
from opdb.errors import CannotMeasureError
from tests.counters import stand_in

OPTIONS = (
    *("--clock-control", "--cache-control", "--profile-from-start", "--nvtx", "--metrics"),
    *("--force-overwrite", "--export", "--import", "--csv", "--page", "--query-metrics"),
)


@pytest.mark.skipif(shutil.which("ncu") is None, reason="no Nsight Compute here")
def test_the_real_one_has_every_option() -> None:
    told = subprocess.run(["ncu", "--help"], capture_output=True, text=True, check=True).stdout
    assert [option for option in OPTIONS if option not in told] == []
    assert find().version[0].isdigit()


def test_a_program_runs_and_the_report_is_kept(tmp_path: Path) -> None:
    tool = Ncu(str(stand_in.install(tmp_path)), "1")
    assert tool.known_metrics() == set(stand_in.KNOWN)
    with pytest.raises(CannotMeasureError, match=r"ncu failed: The application returned an error"):
        tool.profile(["false"], ["dram__bytes.sum"], tmp_path / "a.ncu-rep")


def test_one_that_does_not_run_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "ncu"
    broken.write_text("no program")
    with pytest.raises(CannotMeasureError, match=r"ncu does not run: Permission denied"):
        Ncu(str(broken), "1").known_metrics()


def test_the_newest_of_those_that_are_not_on_path(tmp_path: Path) -> None:
    for version in ("2023.1", "2024.1"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "ncu").touch()
    assert elsewhere([f"{tmp_path}/*/ncu"]) == f"{tmp_path}/2024.1/ncu"
    assert elsewhere([f"{tmp_path}/none/ncu"]) is None
