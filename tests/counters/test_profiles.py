"""Calls under a stand-in for Nsight Compute: in parts, and what cannot be called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opdb.bench.session import Platform, detect
from opdb.records import Board, Configuration
from opdb.store import Store, open_store
from opdb.studies.roofline import profiling as profiles
from opdb.studies.roofline.counters import Ncu, definition
from opdb.studies.roofline.profiling import profile_calls
from tests.counters import stand_in

HUGE = 2**50


def relu(size: int, **parameters: Any) -> Configuration:
    return Configuration("relu", parameters, {"input": {"shape": [size], "dtype": "float32"}})


@pytest.fixture
def platform() -> Platform:
    cpu = detect("cpu")
    device = replace(cpu.device, slug="made-up-gpu", name="made up", type="cuda")
    return replace(cpu, device=device, board=Board("GPU-0", device.slug))


@pytest.fixture
def tool(tmp_path: Path) -> Ncu:
    return Ncu(str(stand_in.install(tmp_path / "programs")), stand_in.VERSION)


def profiled(
    store: Store, platform: Platform, tool: Ncu, calls: list[Configuration], **how: Any
) -> dict[str, str]:
    return profile_calls(store, platform, tool, definition(stand_in.KNOWN), calls, **how)


def keys(store: Store) -> set[str]:
    return {profile.configuration for profile in store.profiles("made-up-gpu")}


def test_what_cannot_be_called_is_told_and_stops_no_other(
    platform: Platform, tool: Ncu, tmp_path: Path
) -> None:
    small, huge = relu(8), relu(HUGE)
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        missing = profiled(store, platform, tool, [huge, small])
        assert keys(store) == {small.key}
    assert list(missing) == [huge.key] and missing[huge.key].startswith("out_of_memory: ")
    with open_store(str(tmp_path / "none.sqlite")) as store:
        assert len(profiled(store, platform, tool, [huge])) == 1 and keys(store) == set()


def test_parts_are_stored_one_by_one_and_their_reports_numbered(
    platform: Platform, tool: Ncu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "AT_ONCE", 1)
    told: list[int] = []
    with open_store(str(tmp_path / "opdb.sqlite")) as store:

        def done(count: int) -> None:
            told.append(len(keys(store)))
            if len(told) == 2:
                raise KeyboardInterrupt

        calls = [relu(8), relu(9), relu(10)]
        with pytest.raises(KeyboardInterrupt):
            profiled(store, platform, tool, calls, keep=tmp_path / "kept", done=done)
        assert told == [1, 2] and keys(store) == {relu(8).key, relu(9).key}
    assert sorted(p.name for p in tmp_path.glob("kept*")) == ["kept-2.ncu-rep", "kept.ncu-rep"]


def test_a_job_is_run_call_by_call() -> None:
    call, unknown = relu(8, inplace=True), Configuration("no such kind")
    texts = [call.json, unknown.json]
    reasons = profiles.run({"device": "cpu", "board": "", "configurations": texts})
    assert reasons[call.key] is None
    assert str(reasons[unknown.key]).startswith("unsupported: unknown kind 'no such kind'")
