"""A run matrix on a GPU: each run has the board to itself; energy, memory and loader are told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image

from opdb.derive.costs import FOREIGN_PROCESS
from opdb.store import open_store
from tests.paths import python_path

MATRIX = """
models: mobilenet_v2
batch_sizes: 4
precision: [fp32, amp]
backend: cuda
iters: 20
variants: [{images: images, workers: 0, precision: fp32}]
"""


def test_every_run_has_the_board_to_itself(calibrated: Path, tmp_path: Path) -> None:
    for number in range(8):
        path = tmp_path / f"images/class{number % 2}/{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((640, 480), 50).convert("RGB").save(path)
    (tmp_path / "runs.yml").write_text(MATRIX)
    database = str(shutil.copy(calibrated, tmp_path))
    command = [sys.executable, "-m", "opdb", "train", "runs.yml", "--json", "--db", database]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["state"] for row in rows] == ["done"] * 3
    for row in rows:
        assert row["energy_per_image_j"] > 0 and row["energy_low_j"] < row["energy_high_j"]
        assert row["peak_memory_bytes"] > 2**20 and row["peak_resident_bytes"] > 2**20
    assert rows[2]["waits_for_data"] > max(rows[0]["waits_for_data"], rows[1]["waits_for_data"])
    with open_store(database) as store:
        made = {run.campaign for run in store.model_runs(setting=None)}
        campaigns = [each for each in store.campaigns() if each.id in made]
    assert len(campaigns) == 3
    notes = [note for campaign in campaigns for note in campaign.calibration.notes]
    others = [note for note in notes if note.startswith(FOREIGN_PROCESS)]
    # This process is on the board where another test of it was before; no other run may be.
    assert all(note.startswith(f"{FOREIGN_PROCESS}: {os.getpid()} ") for note in others), others
