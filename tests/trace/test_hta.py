"""Meta's Holistic Trace Analysis reads a predicted pass as it reads one that was profiled."""

from __future__ import annotations

from pathlib import Path

import pytest
from hta.trace_analysis import TraceAnalysis

import opdb
from tests import published


@pytest.mark.filterwarnings("ignore")
def test_its_breakdown_is_the_predictions(tmp_path: Path) -> None:
    """It rounds each slice to whole microseconds."""
    found = opdb.trace(
        "resnet50", batch_size=32, mode="eager", db=str(published.default_database())
    )
    path = tmp_path / "trace.json"
    path.write_bytes(found.to_bytes())
    analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(tmp_path))
    [row] = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
    works = next(track for track in found.tracks() if track.name == "device works")
    assert row["compute_time(us)"] == pytest.approx(works.time_s * 1e6, abs=works.slices or 0)
    whole_s = found.predicted.time_s
    assert row["kernel_time(us)"] == pytest.approx((whole_s or 0) * 1e6, rel=0.05)
