"""Chakra traces: MLCommons' own reader takes them, and their nodes add up to the prediction."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from chakra.schema.protobuf.et_def_pb2 import COMP_NODE, GlobalMetadata, Node
from chakra.src.jsonizer import jsonizer
from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd

import opdb
from opdb.errors import InputError
from tests import published
from tests.cli.conftest import Opdb
from tests.cli.conftest import opdb as opdb_run  # noqa: F401


def attributes(message: Any) -> dict[str, Any]:
    return {each.name: getattr(each, each.WhichOneof("value")) for each in message.attr}


def read(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Read a trace as Chakra's tools do."""
    about, nodes = GlobalMetadata(), []
    with openFileRd(str(path)) as stream:
        assert decodeMessage(stream, about)
        while decodeMessage(stream, node := Node()):
            nodes.append(node)
    assert about.version == "1.0.0"
    return attributes(about), nodes


@pytest.mark.parametrize("name", ["pass.et", "pass.et.gz"])
def test_chakras_reader_takes_it_and_it_adds_up(
    opdb_run: Opdb,  # noqa: F811
    name: str,
) -> None:
    db = str(published.default_database())
    ran = opdb_run(
        *("trace", "resnet50", "-b", 32, "--mode", "graph", "--chakra", "-o", name, "--db", db)
    )
    assert ran.status == 0, ran.err
    about, nodes = read(Path(name))
    predicted = opdb.predict("resnet50", batch_size=32, mode="graph", db=db)
    told = list(map(attributes, nodes))
    assert len(nodes) == len({each.id for each in nodes}) > 150
    assert about["time_s"] == predicted.time_s and about["model"] == "resnet50"
    assert sum(each["device_time_s"] for each in told) == pytest.approx(predicted.time_s)
    assert sum(each["energy_j"] for each in told) == pytest.approx(predicted.energy_j)
    for before, node, each in zip([None, *nodes], nodes, told, strict=False):
        assert list(node.data_deps) == ([] if before is None else [before.id])
        assert node.type == COMP_NODE and node.duration_micros == round(each["device_time_s"] * 1e6)
        assert each["time_s_low"] <= each["time_s"] <= each["time_s_high"]
        assert each["num_ops"] == each["flops"] and each["is_cpu_op"] is False


def test_chakras_own_tool_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = str(published.default_database())
    content = opdb.trace("resnet50", batch_size=32, mode="graph", db=db).chakra()
    (tmp_path / "pass.et").write_bytes(content)
    files = ["--input_filename", "pass.et", "--output_filename", "pass.json"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["chakra_jsonizer", *files])
    jsonizer.main()
    first = json.JSONDecoder().raw_decode((tmp_path / "pass.json").read_text())[0]
    assert first["version"] == "1.0.0"


def test_what_it_needs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    db = str(published.default_database())
    found = opdb.trace("resnet50", batch_size=32, mode="graph", db=db)
    monkeypatch.setitem(sys.modules, "chakra.schema.protobuf", None)
    with pytest.raises(InputError, match="needs mlc-chakra"):
        found.chakra()
