"""Code that is evicted before a call; on the processor, where there is none."""

from __future__ import annotations

import re

from opdb.bench.neighbours import INSTRUCTIONS, THREADS, evicting_ptx

L2_BYTES = 2**24


def test_the_evicting_kernel_is_as_long_as_it_says_and_no_two_lines_are_one() -> None:
    ptx = evicting_ptx(INSTRUCTIONS)
    sums = re.findall(r"fma\.rn\.f32 (%f\d), \1, \1, 0f([0-9A-F]{8});", ptx)
    assert len(sums) == len({number for _, number in sums}) == INSTRUCTIONS
    assert {register for register, _ in sums} == {"%f0", "%f1", "%f2", "%f3"}
    assert f"mad.lo.u32 %r2, %r1, {THREADS}, %r0;" in ptx
