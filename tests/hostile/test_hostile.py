"""Files of strangers, mutated: each is read or refused in one message, and nothing else happens."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opdb.errors import OpdbError
from tests.hostile.mutation import KINDS, Edit, edited
from tests.hostile.readers import CORPUS, READERS, Reader, set_readers
from tests.store.small_set import write_small_set

EDITS = st.lists(
    st.builds(Edit, st.sampled_from(KINDS), st.floats(0, 1), st.integers(0, 2**24)),
    min_size=1,
    max_size=6,
)
FEW = settings(
    max_examples=40,
    deadline=10_000,
    derandomize=True,  # the same files on every machine
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def _unwarned() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that damaged estimates hold
        yield


def read(reader: Reader, content: bytes) -> None:
    """Read a file of this content; raise what is no message."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"given{reader.ending}")
        path.write_bytes(content)
        try:
            reader.read(path)
        except OpdbError as error:
            assert str(error)


@pytest.mark.parametrize("name", READERS)
def test_seeds_are_read(name: str, tmp_path: Path) -> None:
    for text in READERS[name].seeds():
        path = tmp_path / f"seed{READERS[name].ending}"
        path.write_text(text)
        READERS[name].read(path)


@pytest.mark.parametrize(
    "path", sorted(CORPUS.rglob("*.*")), ids=lambda path: str(path.relative_to(CORPUS))
)
def test_what_once_ended_in_an_internal_error(path: Path) -> None:
    read(READERS[path.parent.name], path.read_bytes())


@pytest.mark.parametrize("name", READERS)
def test_a_mutated_file_is_read_or_refused(name: str) -> None:
    reader = READERS[name]
    seeds = reader.seeds()

    @FEW
    @given(st.sampled_from(seeds), EDITS)
    def check(seed: str, edits: list[Edit]) -> None:
        read(reader, edited(seed, edits, reader.words))

    check()


def test_a_mutated_set_is_imported_or_refused(tmp_path: Path) -> None:
    write_small_set(tmp_path / "set")
    readers = set_readers(tmp_path / "set")

    @FEW
    @given(st.sampled_from(sorted(readers)), st.integers(0, 2**24), EDITS)
    def check(name: str, which: int, edits: list[Edit]) -> None:
        reader = readers[name]
        seeds = reader.seeds()
        read(reader, edited(seeds[which % len(seeds)], edits, reader.words))

    check()
