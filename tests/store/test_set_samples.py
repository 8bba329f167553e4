"""The raw samples of a set lie in a file of their own, and are found there when asked for."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.store import Store, database, open_store
from opdb.store.costs import derived
from opdb.store.fields import LEFT_OUT, STRETCH, pack
from opdb.store.opening import (
    FILE,
    MANIFEST,
    SAMPLES,
    check_manifest,
    write_manifest,
)
from opdb.store.sets import export_set
from tests.published import import_set
from tests.store import samples
from tests.store.small_set import unpacked


def lines(folder: Path) -> list[str]:
    return lzma.decompress((folder / SAMPLES).read_bytes()).decode().splitlines()


def checkout_of(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder the only published set; return where it lies then."""
    monkeypatch.delenv("OPDB_DB", raising=False)
    (tmp_path / "checkout" / "db").mkdir(parents=True)
    monkeypatch.setattr(database, "package_parent", lambda: tmp_path / "checkout")
    return folder.rename(tmp_path / "checkout" / "db" / folder.name)


def test_a_visit_has_a_line_and_an_anchor_its_samples_in_its_row(folder: Path) -> None:
    of_visit, of_host = lines(folder)
    id_, _, text = of_visit.partition(" ")
    assert id_ == "visit-1" and of_host.startswith("host-visit-1 ")
    assert STRETCH.decode(pack(json.loads(text)["stretch"])) == samples.visit().stretch
    with unpacked(folder) as connection:
        found = connection.execute("SELECT role, stretch, restore FROM visit WHERE outcome = 'ok'")
        rows = {row["role"]: (row["stretch"], row["restore"]) for row in found}
    assert rows["measurement"] == (LEFT_OUT, LEFT_OUT)
    assert rows["anchor"][0] not in (None, LEFT_OUT)


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
        assert derived(store, "GPU-1")[1] == 0
        export_set(store, tmp_path / "again", device="nvidia-h200")
    assert lines(tmp_path / "again") == lines(tmp_path / "checkout" / "db" / "nvidia-h200")


def test_a_damaged_line_is_told_when_it_is_looked_up(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = checkout_of(folder, tmp_path, monkeypatch)
    with open_store() as store:
        rewritten(lambda text: text.replace('{"', "{", 1))(there / SAMPLES)
        with pytest.raises(InputError, match="'visit-1': "):
            store.visits("GPU-1")
        (there / SAMPLES).write_bytes(b"")
        with pytest.raises(InputError, match=r"samples.xz is damaged"):
            store.visits("GPU-1")


def rewritten(change: Callable[[str], str], line: int = 0) -> Callable[[Path], None]:
    """Return what changes the line of the visit, or another, of a file."""

    def write(path: Path) -> None:
        found = lzma.decompress(path.read_bytes()).decode().splitlines(keepends=True)
        found[line] = change(found[line])
        path.write_bytes(lzma.compress("".join(found).encode()))

    return write


def renamed(text: str) -> str:
    return "visit-8 " + text.partition(" ")[2]


DAMAGED = [
    (lambda path: path.write_bytes(path.read_bytes()[:-9]), "samples.xz is damaged: "),
    (lambda path: path.write_bytes(b"id,stretch\n"), "samples.xz is damaged: "),
    (lambda path: path.write_bytes(lzma.compress(b"\xff\n")), "samples.xz is damaged: "),
    (rewritten(lambda text: text.rstrip("\n"), -1), "samples.xz: a line is cut off"),
    (rewritten(renamed), "raw samples are needed"),
    (rewritten(lambda text: 'visit-1 {"role":[1]}\n'), "raw samples are needed"),
    (rewritten(lambda text: "visit-1 [1]\n"), "samples.xz: 'visit-1': 'list' object"),
    (rewritten(lambda text: text.replace("{", "", 1)), "samples.xz: 'visit-1': "),
    (
        rewritten(lambda text: f"visit-1 {'[' * 100_000}\n"),
        "samples.xz: 'visit-1': nested too deeply",
    ),
    (rewritten(lambda text: text.replace('"f":3', '"f":4')), "column stretch: .* encoding 4"),
    (rewritten(lambda text: text.replace("[", "[1,", 1), 1), "column host_time_s: "),
    (rewritten(lambda text: 'host-visit-1 {"times":7}\n', 1), "column times: .*not iterable"),
    (lambda path: path.unlink(), "raw samples are needed"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGED)
def test_a_damaged_file_is_refused(
    folder: Path, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    (folder / "manifest.json").unlink(missing_ok=True)
    damage(folder / SAMPLES)
    with open_store(str(tmp_path / "other.sqlite")) as other:
        with pytest.raises(InputError, match=said) as caught:
            import_set(other, folder)
        assert not other.devices()
    assert len(str(caught.value)) < 600


# The manifest of a set: its text, and what is refused.


def test_a_file_that_was_changed_or_lies_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / FILE).write_text("abc")
    write_manifest(folder, {})
    (folder / FILE).write_text("abd")
    with pytest.raises(InputError, match=f"{FILE}: not the file that {MANIFEST} lists"):
        check_manifest(folder)
    (folder / FILE).write_text("abc")
    check_manifest(folder)
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace(FILE, f"../set/{FILE}"))
    with pytest.raises(InputError, match=f"{FILE}: not the file that {MANIFEST} lists"):
        check_manifest(folder)
