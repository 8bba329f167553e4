"""Passes between measured ones, and sums of passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from opdb.growth import benched_configurations, lengths, sizes_of, steps_of
from opdb.predict.figures import energy_of, time_of, total
from opdb.predict.generation import (
    REACH,
    InPart,
    Interpolated,
    Ladder,
    _curved,
    _place_of,
    between,
    between_steps,
    in_part_between,
    rung_weights,
    standing,
    step_weights,
)
from opdb.records import Call, Configuration, Cost, OperatingPoint, PassMemory, Quantity, Workload
from opdb.store import open_store
from tests import published
from tests.compose.test_composer import CONV, RELU, compose, cost, inputs, workload
from tests.growth.test_steps import generation


@pytest.mark.parametrize(("first", "last"), [(7, 7), (5, 9), (100, 3000)])
def test_weights_sum_what_is_linear_exactly(first: int, last: int) -> None:
    knots = lengths(first, last)
    found = step_weights(knots, first, last)
    every = range(first, last + 1)
    assert math.isclose(sum(found), len(every))
    of_knots = sum(n * (3 + 0.5 * knot) for n, knot in zip(found, knots, strict=True))
    assert math.isclose(of_knots, sum(3 + 0.5 * length for length in every))


def test_a_step_counts_to_the_lengths_around_it() -> None:
    assert step_weights([5, 7, 9], 5, 9) == [1.5, 2, 1.5]
    assert step_weights([5, 9], 6, 8) == pytest.approx([1.5, 1.5])
    assert step_weights([100], 100, 354) == [255], "all of a static cache"
    assert step_weights([1, 3, 5, 7, 9], 1, 9) == [1.5, 2, 2, 2, 1.5]


def test_a_total_is_each_pass_as_often_as_it_runs() -> None:
    rests_on = inputs(cost(CONV, 3e-3, 0.6), cost(RELU, 1e-3, 0.1))
    first, step = (compose(workload(c), "graph", rests_on) for c in (CONV, RELU))
    time_s = total([(1.0, time_of(first)), (9.0, time_of(step))])
    energy_j = total([(1.0, energy_of(first)), (9.0, energy_of(step))])
    assert time_s is not None and energy_j is not None
    assert time_s.value == pytest.approx(12e-3)
    assert energy_j.value == pytest.approx(100 * 12e-3 + 0.6 + 0.9)
    assert time_s.interval == pytest.approx(
        [a + 9 * b for a, b in zip(first.time_interval_s, step.time_interval_s, strict=True)]
    )
    assert energy_j.interval == pytest.approx(
        [a + 9 * b for a, b in zip(first.energy_interval_j, step.energy_interval_j, strict=True)]
    )
    dark = replace(step, energy_j=None, energy_interval_j=None)
    assert total([(1.0, energy_of(first)), (9.0, energy_of(dark))]) is None


RUNGS = [(b, n) for b in (1, 8, 64) for n in (512, 2048, 8192)]


@pytest.mark.parametrize("at", [(8, 2048), (8, 1000), (3, 700), (64, 8192 * 3), (100, 200)])
def test_weights_give_what_is_linear_in_batch_and_length(at: tuple[int, int]) -> None:
    found = rung_weights(RUNGS, at)
    assert math.isclose(sum(found.values()), 1)

    def value(batch: int, length: int) -> float:
        return 3 + 2 * batch + 0.5 * length + 0.1 * batch * length

    of_rungs = sum(share * value(*RUNGS[number]) for number, share in found.items())
    assert math.isclose(of_rungs, value(*at))


def test_what_lies_too_far_beyond_the_rungs_has_no_weights() -> None:
    assert rung_weights(RUNGS, (8, int(8192 * REACH))) and rung_weights(RUNGS, (8, 128))
    assert rung_weights(RUNGS, (8, int(8192 * REACH) + 1)) is None
    assert rung_weights(RUNGS, (8, 127)) is None
    assert rung_weights(RUNGS, (257, 2048)) is None
    assert rung_weights([(8, 512), (8, 2048)], (4, 512)) is None  # one batch size tells of no other


@pytest.fixture(scope="module")
def steps() -> tuple[list[Workload], Mapping[str, Cost]]:
    """Decoding steps of Llama-3.2-1B, published: nine of batch and length, and their costs."""
    with open_store(str(published.database_of("nvidia-h200-generation"))) as store:
        decoding = store.workloads("llama-3.2-1b", phase="decode")
        stored = [each for each in decoding if "length" in sizes_of(each)]  # a static cache
        [board] = [each.uuid for each in store.boards() if each.uuid.startswith("GPU-76ad05b2")]
        keys = {c.key for each in stored for c in each.occurrences()}
        costs = {key: each[0] for key, each in store.costs(board, keys).items()}
    part = [each for each in stored if sizes_of(each)["context"] + 1 < sizes_of(each)["length"]]
    found = [each for each in part if all(c.key in costs for c in each.occurrences())]
    assert len(found) == 9
    return found, costs


def total_s(workload: Workload, costs: Mapping[str, Cost]) -> float:
    times = ((n, costs[c.key].time_s) for c, n in workload.occurrences().items())
    return sum(n * time.mean for n, time in times if time is not None)


def test_a_rung_left_out_is_found_within_its_error(
    steps: tuple[Sequence[Workload], Mapping[str, Cost]],
) -> None:
    """By a line from 512 to 8,192 at 2,048: sums of calls are off by 2.1 % at most."""
    found, costs = steps
    for each in (e for e in found if sizes_of(e)["length"] == 2048):
        others = [e for e in found if sizes_of(e)["length"] != 2048]
        answer = between(others, costs, sizes_of(each))
        assert answer is not None
        workload, interpolated = answer
        assert workload.calls == each.calls
        joined = {**costs, **interpolated.costs}
        assert abs(total_s(workload, joined) / total_s(each, costs) - 1) < 0.022
        assert interpolated.errors == pytest.approx((0.05, 0.05))  # no rung can be left out of two


def test_a_measured_pass_is_itself(steps: tuple[Sequence[Workload], Mapping[str, Cost]]) -> None:
    found, costs = steps
    answer = between(found, costs, sizes_of(found[0]))
    assert answer[0] == found[0] and not answer[1].costs
    assert answer[1].errors == (0.0, 0.0)
    assert between(found, {}, sizes_of(found[0])) is None  # none of its calls was measured
    rungs, known = ladder()
    assert standing(rungs, known, {**asked(1024), "context": 30})[0] == rungs[1]
    assert standing(rungs, known, asked(1280)) is None


def relu(batch: int, length: int) -> Configuration:
    spec = {"shape": [batch, length], "dtype": "float32"}
    return Configuration("relu", {}, {"input": spec})


def sigmoid(length: int) -> Configuration:
    return Configuration("sigmoid", {}, {"input": {"shape": [length], "dtype": "float32"}})


SAME = Configuration("sigmoid", {}, {"input": {"shape": [2, 8], "dtype": "float32"}})
MEMORY = PassMemory(1000, 10, 400, 0, 400)


def step(length: int, batch: int = 2, **changes: Any) -> Workload:
    """A step whose calls are two relus of its length, and one that is alike in all steps."""
    calls = [Call(relu(batch, length), "module")] * 2 + [Call(SAME, "module")]
    made = Workload(
        name="made up",
        source="a test",
        source_version="1",
        inputs={"args": [], "kwargs": {}, "generation": {"context": 7, "cache_length": length}},
        batch_size=batch,
        dtype="float32",
        memory_format="contiguous",
        calls=tuple(calls),
        containers=0,
        phase="decode",
        memory=replace(MEMORY, activation_bytes=100 * length, peak_bytes=100 * length),
    )
    return replace(made, **changes)


def quantity(mean: float) -> Quantity:
    return Quantity(mean, mean, None, None, 2)


def measured(configuration: Configuration, time_s: float, **changes: Any) -> Cost:
    made = replace(
        cost(configuration, time_s),
        time_s=quantity(time_s),
        eager_time_s=quantity(time_s + 1e-6),
        power_w=quantity(300.0),
        energy_j=quantity(1.0),
        dynamic_energy_j=quantity(100.0 * time_s),
        host_time_s={"module": quantity(5e-6 + time_s)},
        limited=OperatingPoint(1e9, 2 * time_s, 70.0 * time_s),
        hot=OperatingPoint(None, time_s / 2, None),
        reasons={"power_w": "none"},
    )
    return replace(made, **changes)


LENGTHS = {512: 1e-6, 1024: 3e-6, 2048: 4e-6}


def ladder(**changes: Any) -> tuple[list[Workload], dict[str, Cost]]:
    costs = [measured(relu(2, length), time_s) for length, time_s in LENGTHS.items()]
    costs[1] = replace(costs[1], **changes)
    return [step(length) for length in LENGTHS], {
        each.configuration: each for each in (*costs, measured(SAME, 7e-6))
    }


def asked(length: int, batch: int = 2) -> dict[str, int]:
    return {"batch": batch, "context": 7, "length": length}


def test_a_cost_between_rungs_lies_on_their_line() -> None:
    found = between(*ladder(), asked(1280))
    assert found is not None
    workload, interpolated = found
    assert [call.configuration for call in workload.calls] == [relu(2, 1280), relu(2, 1280), SAME]
    assert workload.inputs["generation"] == {"context": 7, "cache_length": 1280}
    assert workload.memory == replace(MEMORY, activation_bytes=128_000, peak_bytes=128_000)
    [cost] = interpolated.costs.values()
    time_s = 0.75 * 3e-6 + 0.25 * 4e-6
    assert cost.configuration == relu(2, 1280).key
    assert (cost.visits, cost.power_w, cost.energy_j) == (0, None, None)
    assert (cost.flags, cost.reasons) == (("between",), {})
    assert cost.time_s.mean == cost.time_s.median == pytest.approx(time_s)
    assert (cost.time_s.low, cost.time_s.high, cost.time_s.count) == (None, None, 0)
    assert cost.eager_time_s.mean == pytest.approx(time_s + 1e-6)
    assert cost.dynamic_energy_j.mean == pytest.approx(100 * time_s)
    assert cost.host_time_s["module"].mean == pytest.approx(5e-6 + time_s)
    assert cost.limited.clock_hz == 1e9
    assert (cost.limited.time_s, cost.hot.time_s) == pytest.approx((2 * time_s, time_s / 2))
    assert cost.limited.dynamic_energy_j == pytest.approx(70 * time_s)
    assert cost.hot.dynamic_energy_j is None
    half = between(*ladder(), asked(1536))
    assert half is not None, "neither rung is nearer"
    beyond = between(*ladder(), asked(4096))
    [cost] = beyond[1].costs.values()
    assert cost.time_s.mean == pytest.approx(6e-6), "by the last two rungs"


def product(length: int) -> Configuration:
    specs = {"input": [length, 8], "other": [8, length]}
    return Configuration(
        "matmul", {}, {name: {"shape": of, "dtype": "float32"} for name, of in specs.items()}
    )


def test_a_cost_goes_with_the_work_where_that_is_on_no_line() -> None:
    """Products whose operations go with the square of the length, and whose times do."""
    steps = [replace(step(n), calls=(Call(product(n), "function"),)) for n in LENGTHS]
    costs = {product(n).key: measured(product(n), 1e-12 * n**2) for n in LENGTHS}
    for length in (1280, 4096):
        found = between(steps, costs, asked(length))
        [cost] = found[1].costs.values()
        assert cost.time_s.mean == pytest.approx(1e-12 * length**2)
        assert cost.dynamic_energy_j.mean == pytest.approx(1e-10 * length**2)
    view = Configuration("flatten", {}, {"input": {"shape": [4, 4], "dtype": "float32"}})
    assert _curved([(1.0, view)], SAME) == 1.0, "no work, on a line of none"


def test_what_one_rung_lacks_is_not_known_between() -> None:
    found = between(*ladder(eager_time_s=None, host_time_s={}, limited=None), asked(1280))
    [cost] = found[1].costs.values()
    assert cost.eager_time_s is None and cost.time_s is not None
    assert cost.host_time_s == {} and cost.limited is None and cost.hot is not None
    steps, costs = ladder()
    cached = [replace(each, memory=replace(MEMORY, cache_bytes=300)) for each in steps]
    assert between(cached, costs, asked(1280))[0].memory.weight_bytes == 700, "no call has a cache"
    steps[1] = replace(steps[1], memory=None)
    assert between(steps, costs, asked(1280))[0].memory is None
    assert between(*ladder(time_s=None), asked(1280)) is not None, "by 512 and 2048"
    [cost] = between(*ladder(), asked(128))[1].costs.values()
    assert cost.time_s.mean == pytest.approx(0.25e-6), "a line that falls: 1/4 of the least"


def test_what_some_rungs_lack_is_told_by_the_others() -> None:
    """A call that 1,024 has no cost of lies on a line from 512 to 2,048, there as elsewhere."""
    steps, costs = ladder()
    other = {length: Configuration("gelu", {}, relu(2, length).inputs) for length in LENGTHS}
    steps = [
        replace(each, calls=(*each.calls, Call(own, "module")))
        for each, own in zip(steps, other.values(), strict=True)
    ]
    costs |= {other[length].key: measured(other[length], LENGTHS[length]) for length in (512, 2048)}
    assert between(steps, costs, asked(4096)) is not None, "by 512 and 2048"
    found = in_part_between(steps, costs, asked(1024))
    assert found[0] == steps[1]
    lacking = found[1].costs[other[1024].key].time_s
    assert lacking.mean == pytest.approx(2e-6)
    # Of 3 + 3 + 2 µs, the last two are off as far as two rungs are taken to be.
    assert found[1].errors == pytest.approx((0.05 * 2 / 8, 0.05 * 2 / 8))
    found = in_part_between(steps, costs, asked(1280))
    assert found[0].calls[3].configuration.key in found[1].costs
    alone = {key: cost for key, cost in costs.items() if key != other[2048].key}
    found = in_part_between(steps, alone, asked(1280))
    assert found is not None, "a pass is made though one rung tells nothing of others"
    assert found[0].calls[3].configuration.key not in found[1].costs
    nothing = in_part_between(steps, {}, asked(1280))
    assert nothing[0] == found[0] and not nothing[1].costs
    assert in_part_between(steps[:1], costs, asked(1280)) is None
    newer = replace(step(1280), source_version="2")
    found = in_part_between([*steps, newer], costs, asked(1280))
    assert found[0] == newer and not found[1].costs, "it is stored just so"


def test_errors_of_lines_go_together_and_those_of_estimates_are_their_own() -> None:
    line = Interpolated({"a": measured(SAME, 2.0)}, (0.1, 0.2))
    rest = Interpolated(
        {"b": measured(SAME, 3.0), "a": measured(SAME, 9.0)}, (0.2, 0.1), {"c": "?"}
    )
    both = InPart(line, rest)
    assert both.costs == {"a": line.costs["a"], "b": rest.costs["b"]}
    assert both.refused == {"c": "?"}
    time_s, energy_j = both.half_widths({"a": 2.0, "b": 1.0}, 10.0)
    assert time_s == pytest.approx(math.hypot(2 * 0.1 * 4.0, 2 * 0.2 * 3.0))
    own_j = math.hypot(10 * 0.8, 2 * 0.2 * 400), math.hypot(10 * 1.2, 2 * 0.1 * 300)
    assert energy_j == pytest.approx(math.hypot(*own_j))
    time_s, no_energy = both.half_widths({"a": 2.0}, None)
    assert time_s == pytest.approx(0.8) and no_energy is None
    dark = measured(SAME, 3.0, dynamic_energy_j=None)
    half_s, half_j = Interpolated({"b": dark}, (0.1, 0.2)).half_widths({"b": 4.0}, 50.0)
    assert (half_s, half_j) == pytest.approx((2.4, 50 * 2.4))


def test_errors_along_both_sizes_add_up(steps: tuple[Any, Mapping[str, Cost]]) -> None:
    at = (8, 1000), (8, 16_384), (16, 1000)
    [inside, _], [beyond, _], [other, _] = map(Ladder(*steps).errors, at)
    assert 0.01 < inside < 0.02 and inside < beyond < 0.05 and other > inside


def test_errors_are_how_far_off_each_rung_would_be() -> None:
    """At 1024 the line from 512 to 2048 gives 2 of 3 µs; beyond the ends, 2.5 of 1, 7 of 4."""
    made = Ladder(*ladder())
    assert made.errors((2, 1024)) == (0.0, 0.0)
    assert made.errors((2, 700)) == pytest.approx((1 / 3, 1 / 3))
    beyond = math.sqrt((1.5**2 + 0.75**2) / 2)
    assert made.errors((2, 4096)) == pytest.approx((beyond, beyond))
    dear = Ladder(*ladder(dynamic_energy_j=quantity(6e-4)))
    assert dear.errors((2, 700)) == pytest.approx((1 / 3, 2 / 3))
    none = Ladder(*ladder(dynamic_energy_j=quantity(0.0)))
    assert none.errors((2, 700)) == pytest.approx((1 / 3, 0.0)), "nothing is off from nothing"
    steps, costs = ladder()
    unmetered = {key: replace(cost, dynamic_energy_j=None) for key, cost in costs.items()}
    assert Ladder(steps, unmetered).errors((2, 700)) == pytest.approx((1 / 3, 0.0))
    spec = {"shape": [2, 8], "dtype": "float32"}
    plain = Configuration("gelu", {}, {"input": spec})
    odd = Configuration("gelu", {"approximate": "tanh"}, {"input": spec})
    steps = [
        replace(each, calls=(*each.calls, Call(own, "module")))
        for each, own in zip(steps, (plain, odd, plain), strict=True)
    ]
    with_odd = costs | {plain.key: measured(plain, 2e-6), odd.key: measured(odd, 5e-6)}
    # Two relus of 2 of 3 µs, and a call of 2 of 5 µs that not every rung has another of.
    assert Ladder(steps, with_odd).errors((2, 700))[0] == pytest.approx(1 - 6 / 11)
    assert made.at(asked(700, 3)) is None, "one batch size tells of no other"
    wide, costs = ladder()
    four = {length: step(length, 4) for length in (512, 2048)}
    for length, each in four.items():
        costs[relu(4, length).key] = measured(relu(4, length), 2 * LENGTHS[length])
        assert each.batch_size == 4
    assert Ladder([*wide, *four.values()], costs).errors((3, 512))[0] == pytest.approx(0.05)


def test_a_prefill_is_placed_by_its_prompt_and_a_step_by_its_cache() -> None:
    assert _place_of({"batch": 2, "prompt": 9, "length": 64}) == (2, 9)
    assert _place_of({"batch": 3, "context": 7, "length": 64}) == (3, 64)
    assert _place_of({"batch": 3, "context": 7}) == (3, 7)


def test_passes_of_another_version_or_with_other_calls_are_no_rungs() -> None:
    steps, costs = ladder()
    other = replace(steps[2], source_version="2")
    assert between([steps[0], other], costs, asked(1024)) is None
    more = replace(steps[2], calls=(*steps[2].calls, Call(SAME, "module")))
    assert between([steps[0], more], costs, asked(1024)) is None
    found = between([*steps[:2], more], costs, asked(700))
    assert len(found[0].calls) == 3, "both groups have a context of 7"
    full = {"args": [], "kwargs": {}, "generation": {"context": 8, "cache_length": 2048}}
    same = between([replace(more, inputs=full), *steps[:2]], costs, asked(700))
    assert same is not None and same[0] == found[0] and same[1].costs == found[1].costs
    outside = {**asked(700), "context": 8}
    assert between([*steps[:2], more], costs, outside) is None
    apart = [
        replace(each, inputs={**full, "generation": {"context": context, "cache_length": n}})
        for each, n, context in zip(steps, LENGTHS, (100, 300, 450), strict=True)
    ]
    assert between(apart[:2], costs, outside) is not None, "one group has all contexts"
    assert between([*apart[:2], more], costs, outside) is None, "of two, neither has this one"
    unmeasured = {key: cost for key, cost in costs.items() if key != relu(2, 1024).key}
    found = between(steps, unmeasured, asked(1280))
    [cost] = found[1].costs.values()
    assert cost.time_s.mean == pytest.approx(2.5e-6)


def test_passes_that_follow_no_rule_leave_the_others_as_they_are() -> None:
    """Of two groups the first has a call of 600, 1024 and 1 at 512, 1024 and 2048."""
    steps, costs = ladder()
    odds = [
        replace(each, calls=(*each.calls, Call(sigmoid(size), "module")))
        for each, size in zip(steps, (600, 1024, 1), strict=True)
    ]
    costs |= {sigmoid(n).key: measured(sigmoid(n), 1e-6) for n in (600, 1024, 1)}
    assert between(odds, costs, asked(1280)) is None
    found = between([*odds, *steps], costs, asked(1280))
    assert len(found[0].calls) == 3


def test_prefills_with_other_calls_tell_none_which_are_its_own() -> None:
    """A prompt, unlike a context, does not tell on which side of a window a pass lies."""
    steps, costs = ladder()
    prompts = []
    for each, length in zip(steps, LENGTHS, strict=True):
        tokens = {"shape": [2, length], "dtype": "int64"}
        said = {"args": [tokens], "kwargs": {}, "generation": {}}
        prompts.append(replace(each, phase="prefill", inputs=said))
    sizes = {"batch": 2, "prompt": 700}
    assert between(prompts, costs, sizes) is not None
    more = [replace(each, calls=(*each.calls, Call(SAME, "module"))) for each in prompts]
    assert between([*prompts, *more], costs, sizes) is None


def linear(whole: Workload) -> dict[str, Cost]:
    """Costs of the benched calls of a generation, on a straight line over their first size."""
    found = {}
    for key, each in benched_configurations([whole]).items():
        found[key] = measured(each, 1e-6 + 1e-8 * each.inputs["input"]["shape"][-1])
    return found


def test_steps_of_a_generation_lie_between_those_that_are_benched() -> None:
    """Beyond a context of 40 a sigmoid grows no more: its first 31 steps are another ladder."""
    whole = generation(101, full=40)
    costs = linear(whole)
    found = between_steps(whole, costs)
    assert found.costs.keys() == {c.key for c in whole.occurrences()} - costs.keys()
    assert len(found.costs) > 60
    for each in whole.occurrences():
        if each.key in found.costs:
            time_s = found.costs[each.key].time_s
            length = each.inputs["input"]["shape"][-1]
            assert time_s.mean == pytest.approx(1e-6 + 1e-8 * length)
    assert found.errors == pytest.approx((0.0, 0.0), abs=1e-9)


def test_the_error_of_a_generation_is_that_of_its_worst_stretch() -> None:
    whole = generation(101, full=40)
    costs = linear(whole)
    [off] = [c for c in whole.occurrences() if c.key in costs and c == sigmoid(20)]
    costs[off.key] = measured(off, 1e-4)
    assert max(between_steps(whole, costs).errors) > 0.5


def test_steps_without_two_that_were_measured_are_not_interpolated() -> None:
    whole = generation(101)
    assert between_steps(whole, {}).costs == {}
    costs = linear(whole)
    few = {k: c for k, c in costs.items() if k in {relu(2, 10).key, sigmoid(10).key}}
    assert between_steps(whole, few).costs == {}
    ends = {sizes_of(each)["context"] for each in (steps_of(whole)[0], steps_of(whole)[-1])}
    two = {c.key: costs[c.key] for n in ends for c in (relu(2, n), sigmoid(n)) if c.key in costs}
    assert len(between_steps(whole, two).costs) > 150, "of two, all between"
    assert between_steps(generation(2), {}).costs == {}, "one step grows nothing"
    assert between_steps(generation(4), linear(generation(4))).costs == {}, "all are measured"
