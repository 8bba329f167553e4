"""The raw samples of a set lie in a file of their own, and are found there when asked for."""

from __future__ import annotations

import csv
import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.errors import DatabaseError, InputError, SamplesLeftOutError
from opdb.store import Store, database, open_store
from opdb.store.deriving import derived
from opdb.store.exchange import export_set, import_set
from opdb.store.packing import pack
from opdb.store.raw import decode_stretch
from opdb.store.samples import APART, LEFT_OUT
from opdb.store.set_reading import read_set
from opdb.store.set_samples import SAMPLES, visits_apart
from tests import published
from tests.store import samples
from tests.store.small_set import put_samples_into_rows, write_small_set


@pytest.fixture
def folder(filled: Store, tmp_path: Path) -> Path:
    target = tmp_path / "nvidia-h200"
    export_set(filled, target, device="nvidia-h200")
    return target


def lines(folder: Path) -> list[str]:
    return lzma.decompress((folder / SAMPLES["visit"]).read_bytes()).decode().splitlines()


def visits(folder: Path) -> list[dict[str, str]]:
    with (folder / "visits.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def checkout_of(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder the only published set; return where it lies then."""
    monkeypatch.delenv("OPDB_DB", raising=False)
    (tmp_path / "checkout" / "db").mkdir(parents=True)
    monkeypatch.setattr(database, "package_parent", lambda: tmp_path / "checkout")
    return folder.rename(tmp_path / "checkout" / "db" / folder.name)


def test_a_visit_has_a_line_and_an_anchor_its_samples_in_its_row(folder: Path) -> None:
    by_role = {row["role"]: row for row in visits(folder) if row["outcome"] == "ok"}
    assert by_role["measurement"]["stretch"] == by_role["measurement"]["restore"] == LEFT_OUT
    assert by_role["anchor"]["stretch"] not in ("", LEFT_OUT)
    [line] = lines(folder)
    short, _, text = line.partition(" ")
    assert by_role["measurement"]["id"].startswith(short)
    assert decode_stretch(pack(json.loads(text)["stretch"])) == samples.visit().stretch
    assert visits_apart(folder) == 1


def test_a_set_with_samples_in_its_rows_is_read_to_the_same(folder: Path, tmp_path: Path) -> None:
    """Those that release 0.1.0 exported."""
    older = shutil.copytree(folder, tmp_path / "older")
    put_samples_into_rows(older)
    assert LEFT_OUT not in [row[name] for row in visits(older) for name in APART["visit"]]
    new, old = (read_set(each)["visits.csv"].values for each in (folder, older))
    assert {n: list(v) for n, v in new.items()} == {n: list(v) for n, v in old.items()}
    with open_store(str(tmp_path / "older.sqlite")) as store:
        import_set(store, older)
        export_set(store, tmp_path / "again", device="nvidia-h200")
    for path in folder.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_set_that_grows_by_a_campaign_keeps_the_bytes_that_it_had(
    filled: Store, folder: Path
) -> None:
    before = (folder / SAMPLES["visit"]).read_bytes()
    later = "2027-01-01T00:00:00Z"
    filled.save_campaign(replace(samples.campaign("later"), started_at=later))
    filled.save_visit(samples.visit("visit-9", campaign="later", started_at=later))
    export_set(filled, folder, device="nvidia-h200")
    after = (folder / SAMPLES["visit"]).read_bytes()
    assert after.startswith(before) and len(after) > len(before)
    assert len(lines(folder)) == 2


def test_the_default_database_leaves_samples_in_the_set_and_finds_them_there(
    filled: Store, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout_of(folder, tmp_path, monkeypatch)
    with open_store() as store:
        with store.reading() as connection:
            held = connection.exec_driver_sql("SELECT stretch FROM visit WHERE role != 'anchor'")
            assert set(held.scalars()) == {LEFT_OUT, None}
        assert store.visits("GPU-1") == filled.visits("GPU-1")
        with store.reading() as connection:
            held = connection.exec_driver_sql("SELECT times FROM host_visit")
            assert list(held.scalars()) == [f"-{len(samples.host_visit().times_s)}"]
        assert store.host_visits("GPU-1") == filled.host_visits("GPU-1")
        assert store.host_blocks("GPU-1") == filled.host_blocks("GPU-1")
        assert derived(store, "GPU-1").is_as_stored
        export_set(store, tmp_path / "again", device="nvidia-h200")
    assert lines(tmp_path / "again") == lines(tmp_path / "checkout" / "db" / "nvidia-h200")


def test_a_damaged_line_is_told_when_it_is_looked_up(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = checkout_of(folder, tmp_path, monkeypatch)
    with open_store() as store:
        rewritten(lambda text: text.replace('{"', "{", 1))(there / SAMPLES["visit"])
        with pytest.raises(DatabaseError, match="a row is damaged"):
            store.visits("GPU-1")
        (there / SAMPLES["visit"]).write_bytes(b"")
        with pytest.raises(InputError, match=r"samples.xz is damaged"):
            store.visits("GPU-1")


def test_where_the_set_is_not_at_hand_its_samples_are_left_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = checkout_of(folder, tmp_path, monkeypatch)
    with open_store() as store:
        copy = shutil.copy(str(store.path), tmp_path / "copy.sqlite")
    with open_store(str(copy)) as store:
        assert len(store.visits("GPU-1")) == 3, "a copy of the database finds them, too"
        (there / SAMPLES["visit"]).unlink()
        assert store.costs("GPU-1") and store.visits("GPU-1", role="anchor")
        with pytest.raises(SamplesLeftOutError, match="a clone of opdb has the samples"):
            store.visits("GPU-1")


def rewritten(change: Callable[[str], str]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        text = lzma.decompress(path.read_bytes()).decode()
        path.write_bytes(lzma.compress(change(text).encode()))

    return write


def renamed(text: str) -> str:
    return "visit-8 " + text.partition(" ")[2]


DAMAGED = [
    (lambda path: path.write_bytes(path.read_bytes()[:-9]), "samples.xz is damaged: "),
    (lambda path: path.write_bytes(b"id,stretch\n"), "samples.xz is damaged: "),
    (lambda path: path.write_bytes(lzma.compress(b"\xff\n")), "samples.xz is damaged: "),
    (rewritten(lambda text: text.rstrip("\n")), "samples.xz: a line is cut off"),
    (
        rewritten(lambda text: text + text),
        "line 2: 'visit-1': the visit lacks no .*, or has others",
    ),
    (rewritten(renamed), "line 1: 'visit-8': no such visit in the set"),
    (rewritten(lambda text: "\n"), "line 1: '': no such visit in the set"),
    (rewritten(lambda text: "visit-1 {}\n"), "expected an object with some of neighbours, rest"),
    (rewritten(lambda text: 'visit-1 {"role":[1]}\n'), "expected an object with some of "),
    (rewritten(lambda text: "visit-1 [1]\n"), "expected an object with some of "),
    (rewritten(lambda text: text.replace("{", "", 1)), "line 1: 'visit-1': "),
    (rewritten(lambda text: f"visit-1 {'[' * 100_000}\n"), "line 1: 'visit-1': nested too deeply"),
    (rewritten(lambda text: text.replace('"f":3', '"f":4')), "column stretch: .* encoding 4"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGED)
def test_a_damaged_file_is_refused(
    folder: Path, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(folder / SAMPLES["visit"])
    with open_store(str(tmp_path / "other.sqlite")) as other:
        with pytest.raises(InputError, match=said) as caught:
            import_set(other, folder)
        assert not other.devices()
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("[", "[1,", 1), "the visit lacks no times, or has others"),
        (lambda text: text.replace("[", '[],"x":[', 1), "expected an object with some of times"),
        (lambda text: 'host-visit-1 {"times":7}\n', "has no len"),
    ],
)
def test_host_times_of_another_number_of_blocks_are_refused(
    folder: Path, tmp_path: Path, change: Callable[[str], str], said: str
) -> None:
    rewritten(change)(folder / SAMPLES["host_visit"])
    said = f"host_samples.xz, line 1: 'host-visit-1?': .*{said}"
    with (
        open_store(str(tmp_path / "other.sqlite")) as other,
        pytest.raises(InputError, match=said),
    ):
        import_set(other, folder)


@pytest.mark.parametrize("table", SAMPLES)
def test_visits_whose_samples_no_file_has_are_refused(
    folder: Path, tmp_path: Path, table: str
) -> None:
    (folder / SAMPLES[table]).unlink()
    with open_store(str(tmp_path / "other.sqlite")) as other:
        with pytest.raises(InputError, match="raw samples are needed"):
            import_set(other, folder)
        assert not other.devices()


def test_a_small_real_set_is_smaller_than_with_samples_in_its_rows(tmp_path: Path) -> None:
    write_small_set(tmp_path / "small")
    apart = sum(path.stat().st_size for path in (tmp_path / "small").iterdir())
    put_samples_into_rows(tmp_path / "small")
    assert apart < sum(path.stat().st_size for path in (tmp_path / "small").iterdir())


def test_a_prediction_reads_no_samples(tmp_path: Path) -> None:
    """Neither the first command nor another: Python may even lack what they are packed with."""
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "nvidia-h200").symlink_to(published.SET)
    program = (
        "import sys; sys.modules['lzma'] = None\n"
        "from pathlib import Path\n"
        "from opdb.store import database\n"
        f"database.package_parent = lambda: Path({str(tmp_path)!r})\n"
        "from opdb.__main__ import main; main()\n"
    )
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", program, "predict", "resnet152", "--batch-size", "32"],
            env={name: value for name, value in os.environ.items() if name != "OPDB_DB"},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0 and "resnet152" in ran.stdout, ran.stderr
