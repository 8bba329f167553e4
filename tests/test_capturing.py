"""An answer about a CUDA graph's capture reaches all that ask, and nothing of it stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.cuda import graphs
from torch.cuda import is_current_stream_capturing as imported_by_name

from opdb.capturing import answering, is_capturing


@pytest.fixture
def truth(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Play a GPU; the list's last entry says whether a graph is being captured."""
    state = [False]
    monkeypatch.setattr(graphs, "_cuda_isCurrentStreamCapturing", lambda: state[-1])
    yield state


def binding() -> object:
    return vars(graphs)["_cuda_isCurrentStreamCapturing"]


@pytest.mark.parametrize("answer", [True, False])
def test_everyone_who_asks_is_told(truth: list[bool], answer: bool) -> None:
    truth[:] = [not answer]
    with answering(answer) as seen:
        assert not seen.asked
        assert torch.cuda.is_current_stream_capturing() is answer
        assert imported_by_name() is answer
        assert seen.asked
        assert is_capturing() is not answer
    assert torch.cuda.is_current_stream_capturing() is imported_by_name() is not answer
    assert is_capturing() is not answer


def test_blocks_nest_and_are_left_by_an_error(truth: list[bool]) -> None:
    before = binding()
    with answering(True) as outer:
        with pytest.raises(KeyError), answering(False) as inner:
            assert not imported_by_name() and not is_capturing()
            raise KeyError
        assert imported_by_name() and not is_capturing()
    assert inner.asked and outer.asked
    assert binding() is before and not imported_by_name()
