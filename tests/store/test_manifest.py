"""The manifest of a set: its text, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.store.opening import (
    FILE,
    MANIFEST,
    check_manifest,
    read_manifest,
    stated_licence,
    write_manifest,
)

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"""The SHA-256 of `abc` (FIPS 180-2, appendix B.1)."""


def test_a_manifest_is_indented_text_with_the_checksum_of_each_file(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("abc")
    write_manifest(tmp_path, {"licence": "CC0-1.0"})
    assert (tmp_path / MANIFEST).read_text() == (
        f'{{\n  "licence": "CC0-1.0",\n  "files": {{\n    "{FILE}": {{\n'
        f'      "sha256": "{ABC}",\n      "bytes": 3\n    }}\n  }}\n}}\n'
    )
    check_manifest(tmp_path)
    assert stated_licence(tmp_path) == "CC0-1.0"


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


@pytest.mark.parametrize("text", ["[]", '{"files": []}', "{", "[" * 100_000])
def test_what_is_no_manifest_is_refused_and_states_no_licence(tmp_path: Path, text: str) -> None:
    assert read_manifest(tmp_path) == {} and stated_licence(tmp_path) is None
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(InputError, match=MANIFEST):
        read_manifest(tmp_path)
    assert stated_licence(tmp_path) is None
