from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from opdb.garbage import gc_paused


def test_nothing_is_collected_within_the_block_and_all_after_it() -> None:
    assert gc.isenabled()
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_lets_it_be_collected_again() -> None:
    @gc_paused()
    def fails() -> None:
        raise ValueError("as it must")

    with pytest.raises(ValueError, match="as it must"):
        fails()
    assert gc.isenabled()


def test_where_it_was_off_it_stays_off() -> None:
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_a_command_made_is_never_searched() -> None:
    program = """
import gc
from opdb.garbage import gc_off_to_the_end
with gc_off_to_the_end():
    made = [[] for _ in range(10_000)]
assert gc.isenabled() and gc.get_freeze_count() > 10_000, gc.get_freeze_count()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
