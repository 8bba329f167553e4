"""Which runs stand beside each other: those of one board, under one power limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opdb.predict.predictor import predictor_for
from opdb.runs import ModelRunSpec, RunTable
from opdb.spec import ModelSpec
from opdb.store import open_store
from opdb.studies.modes import mode_rows, policy
from tests.store import samples

LESS_POWER = replace(samples.DEVICE, slug="nvidia-h200-500w", power_limit_w=500.0)


def test_runs_under_another_power_limit_stand_apart(tmp_path: Path) -> None:
    """The same board is one of two devices; what a mode saves is not what a limit costs."""
    workload = samples.workload()
    eager = samples.model_run(workload)
    slower = replace(eager, id="run-2", campaign="campaign-2", mode="graph")
    with open_store(str(tmp_path / "limits.sqlite")) as store:
        store.save_workload(workload)
        full = samples.campaign()
        less = samples.campaign("campaign-2", device=LESS_POWER)
        for campaign in (full, less):
            store.save_campaign(campaign)
        for run in (eager, slower):
            store.save_model_run(run)
        for campaign, mode in ((full, "eager"), (less, "graph")):
            torch = campaign.environment["torch"]
            counted = policy(campaign.board, torch)
            specs = [
                ModelRunSpec(ModelSpec("m"), workload.key, each, counted.boards)
                for each in ("eager", "graph")
            ]
            left = RunTable(counted, counted.runs(store)).pending(specs)
            assert [spec.mode for spec in specs if spec not in left] == [mode]
            used = predictor_for(store, campaign.device)
            [row] = mode_rows(store, used, campaign.board.uuid, [workload])
            assert row.mode == mode
