"""Measurements of operators: visits, host visits, and what is pending or failed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median
from typing import TypeVar

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    func,
    or_,
    select,
)

from opdb.records import (
    Configuration,
    Form,
    HostVisit,
    Outcome,
    Quantity,
    Role,
    Visit,
    Weights,
    Workload,
)
from opdb.store import rows, schema
from opdb.store.database import Claim, Connected
from opdb.store.fields import APART, HOST_TIMES, are_left_out, blocks, read_json
from opdb.store.rows import (
    Codec,
    Failure,
    ReadRow,
    WhereClauses,
    among,
    matching,
)

_REJECTED = schema.visit.c.flags.like('%"rejected: %')

Seen = TypeVar("Seen", Visit, HostVisit)


@dataclass(frozen=True)
class Head:
    """A workload without its calls: how many it makes, of how many configurations.

    `swept`: only a sweep asked for it.
    """

    workload: Workload
    calls: int
    configurations: int
    swept: bool


@dataclass(frozen=True)
class Standing:
    """The counts of a device: what was measured, what of the workloads is pending, what failed.

    `visits` are those of role measurement; `pending` counts configurations by kind,
    `unmeasured_calls` and good `runs` by the workload's key. Workloads that only sweeps asked for
    count as neither called nor pending; convolutions that were forced to take an algorithm do not
    count.
    """

    campaigns: int
    visits: int
    measured: int
    pending: Mapping[str, int]
    unmeasured_calls: Mapping[str, int]
    runs: Counter[str]
    failures: list[Failure]


class Visits(Connected):
    """The measurements of operators in a database, and what is pending or failed."""

    # what is pending: visits are counted in the database, and only what is returned is read

    def outcomes(
        self,
        device: str,
        configurations: Collection[str] | None = None,
        *,
        board: str | None = None,
        role: Role = "measurement",
        weights: Weights | None = None,
        rejected: bool | None = None,
    ) -> dict[tuple[str, str], Counter[Outcome]]:
        """Count the outcomes of visits inside models on a device by (configuration key, setting).

        `configurations` are keys; with `rejected`, those alone that were rejected, or were not.
        """
        conditions = [
            *matching(schema.campaign, {"device": device, "board": board}),
            *matching(schema.visit, {"role": role, "weights": weights, "access": "model"}),
        ]
        if rejected is not None:
            conditions.append(_REJECTED if rejected else ~_REJECTED)
        visit, configuration = schema.visit, schema.configuration
        query = (
            select(configuration.c.key, visit.c.setting, visit.c.outcome, func.count())
            .join_from(visit, configuration)
            .join(schema.campaign)
            .where(*conditions)
            .group_by(configuration.c.key, visit.c.setting, visit.c.outcome)
        )
        outcomes: dict[tuple[str, str], Counter[Outcome]] = defaultdict(Counter)
        with self.reading() as connection:
            found = connection.execute(rows.about(query, visit, configurations))
            for key, setting, outcome, number in found:
                outcomes[key, setting][outcome] += number
        return dict(outcomes)

    def configurations_among(
        self,
        kinds: Collection[str] | None,
        keys: Collection[str] | None,
        *,
        called: bool = False,
        device: str | None = None,
    ) -> list[Configuration]:
        """Return configurations by kind and then key: those of `keys`, or all that are called.

        With `called` those of `keys` must be called too. What only sweeps asked for counts as no
        workload; `device` (a slug) leaves out what models call only as compiled for other devices.
        """
        table = schema.configuration
        query = select(table.c.json).order_by(table.c.kind, table.c.key)
        if kinds is not None:
            query = query.where(table.c.kind.in_(sorted(kinds)))
        if keys is not None:
            query = query.where(among(table.c.key, keys))
        if keys is None or called:
            query = query.where(table.c.id.in_(_called(device)))
        with self.reading() as connection:
            return [Configuration.from_canonical(text) for text in connection.scalars(query)]

    def touched_by(self, configurations: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return the least and the most bytes that passes touch which call configurations, by key.

        The passes are of workloads that not only sweeps asked for, and whose bytes are stored.
        """
        configuration, call, workload = schema.configuration, schema.call, schema.workload
        touched = workload.c.touched_bytes
        query = (
            select(configuration.c.key, func.min(touched), func.max(touched))
            .join_from(call, configuration, call.c.configuration_id == configuration.c.id)
            .join(workload, call.c.workload_id == workload.c.id)
            .where(among(configuration.c.key, configurations), ~workload.c.swept)
            .where(touched.is_not(None))
            .group_by(configuration.c.key)
        )
        with self.reading() as connection:
            return {key: (least, most) for key, least, most in connection.execute(query)}

    def calls_of(
        self,
        *,
        configurations: Collection[str] | None = None,
        workloads: Collection[str] | None = None,
        device: str | None = None,
    ) -> dict[str, dict[str, int]]:
        """Return how often each workload calls each configuration, by the keys of both.

        They are some configurations, or some workloads; with a device (slug), of those workloads
        whose operators are wanted on it.
        """
        workload, configuration, call = schema.workload, schema.configuration, schema.call
        query = (
            select(workload.c.key, configuration.c.key, func.sum(call.c.calls))
            .join_from(call, configuration, call.c.configuration_id == configuration.c.id)
            .join(workload, call.c.workload_id == workload.c.id)
            .group_by(workload.c.key, configuration.c.key)
        )
        if configurations is not None:
            query = query.where(among(configuration.c.key, configurations))
        if workloads is not None:
            query = query.where(among(workload.c.key, workloads))
        if device is not None:
            query = query.where(workload.c.id.not_in(not_asked_for(device)))
        found: dict[str, dict[str, int]] = defaultdict(dict)
        with self.reading() as connection:
            for each, key, calls in connection.execute(query):
                found[each][key] = calls
        return dict(found)

    def heads(self) -> list[Head]:
        """Return every workload as its model stands, without its calls, in order."""
        call = schema.call
        counts = select(
            call.c.workload_id,
            func.sum(call.c.calls),
            func.count(call.c.configuration_id.distinct()),
        ).group_by(call.c.workload_id)
        with self.reading() as connection:
            found = {row[0]: (row[1], row[2]) for row in connection.execute(counts)}
            return [
                Head(rows.WORKLOAD.read(row), *found.get(row["id"], (0, 0)), bool(row["swept"]))
                for row in rows.workload_rows(connection, rows.PLAIN)
            ]

    def save_visit(self, visit: Visit, claim: Claim | None = None) -> None:
        """Save a visit; its campaign and configuration must be stored, and its claim be held.

        Raises:
            DatabaseError: they are not, or the visit's id is taken.
            ClaimLostError: another worker took the claim over.
        """
        self.insert_referring(schema.visit, [rows.VISIT.row(visit)], claim)

    def save_host_visits(self, visits: Sequence[HostVisit]) -> None:
        """Save host visits, all or none; their campaigns and configurations must be stored.

        Raises:
            DatabaseError: they are not, or a visit's id is taken.
        """
        self.insert_referring(schema.host_visit, list(map(rows.HOST_VISIT.row, visits)))

    def standing(self, device: str) -> Standing:
        """Return how far a device (slug) is: what is measured, pending, failed."""
        visit, call, campaign = schema.visit, schema.call, schema.campaign
        configuration, workload, run = schema.configuration, schema.workload, schema.model_run
        visits = (
            select(func.count())
            .select_from(visit)
            .join(campaign)
            .where(campaign.c.device == device, visit.c.access == "model", rows.unforced(visit))
            .where(visit.c.role == "measurement")
        )
        tried = select(visit.c.configuration_id).join(campaign).where(*rows.measurements(device))
        measured = tried.where(visit.c.outcome == "ok").distinct()
        called = _called(device).subquery()
        unmeasured = select(called.c.id).where(called.c.id.not_in(measured))
        untried = select(called.c.id).where(called.c.id.not_in(tried))
        calls = (
            select(workload.c.key, func.sum(call.c.calls))
            .join(call, call.c.workload_id == workload.c.id)
            .where(call.c.configuration_id.in_(unmeasured))
            .group_by(workload.c.key)
        )
        pending = (
            select(configuration.c.kind, func.count())
            .where(configuration.c.id.in_(untried))
            .group_by(configuration.c.kind)
            .order_by(configuration.c.kind)
        )
        runs = (
            select(workload.c.key, func.count())
            .join(run, run.c.workload_id == workload.c.id)
            .join(campaign, run.c.campaign == campaign.c.id)
            .where(campaign.c.device == device, *rows.usual_and_good())
            .group_by(workload.c.key)
        )
        of_device = select(func.count()).where(campaign.c.device == device)
        distinct = select(func.count()).select_from(measured.subquery())
        failures = self.failures(device)
        with self.reading() as connection:
            return Standing(
                campaigns=connection.execute(of_device).scalar_one(),
                visits=connection.execute(visits).scalar_one(),
                measured=connection.execute(distinct).scalar_one(),
                pending=dict(map(tuple, connection.execute(pending))),
                unmeasured_calls=dict(map(tuple, connection.execute(calls))),
                runs=Counter(dict(map(tuple, connection.execute(runs)))),
                failures=failures,
            )

    def failures(self, device: str) -> list[Failure]:
        """Return what could not be measured on a device, by kind, with the reason given last."""
        visit, campaign, configuration = schema.visit, schema.campaign, schema.configuration
        of_device = rows.measurements(device)
        failing = select(visit.c.configuration_id).join(campaign).where(*of_device)
        query = (
            select(configuration.c.kind, configuration.c.key, visit.c.setting)
            .add_columns(visit.c.outcome, visit.c.reason)
            .join_from(visit, configuration)
            .join(campaign)
            .where(*of_device, visit.c.configuration_id.in_(failing.where(visit.c.outcome != "ok")))
            .order_by(visit.c.started_at)
        )
        tried: dict[tuple[str, str, str], list[tuple[Outcome, str | None]]] = defaultdict(list)
        with self.reading() as connection:
            for kind, key, setting, outcome, reason in connection.execute(query):
                tried[kind, key, setting].append((outcome, reason))
        return [
            Failure(key, kind, setting, *seen[-1], len(seen))
            for (kind, key, setting), seen in sorted(tried.items())
            if all(outcome != "ok" for outcome, _ in seen)
        ]

    def visits(self, board: str, *, role: Role | None = None) -> list[Visit]:
        """Return a board's visits, of a role or all, oldest first."""
        conditions = matching(schema.campaign, {"board": board})
        conditions += matching(schema.visit, {"role": role})
        return self._seen(rows.VISIT, schema.visit, conditions)

    def spent(self, device: str) -> list[tuple[str, float]]:
        """Return what each configuration's visits took on each board of a device, without anchors.

        Its kind and the seconds; visits inside models count, whatever came of them.
        """
        visit, campaign, configuration = schema.visit, schema.campaign, schema.configuration
        query = (
            select(configuration.c.kind, func.sum(visit.c.cost_s))
            .join_from(visit, campaign, visit.c.campaign == campaign.c.id)
            .join(configuration, visit.c.configuration_id == configuration.c.id)
            .where(campaign.c.device == device, rows.unforced(visit))
            .where(visit.c.role != "anchor", visit.c.access == "model")
            .group_by(configuration.c.key, configuration.c.kind, campaign.c.board)
            .order_by(configuration.c.key, campaign.c.board)
        )
        with self.reading() as connection:
            return [(kind, seconds) for kind, seconds in connection.execute(query)]

    def kernels(self, board: str) -> dict[str, Mapping[str, int]]:
        """Return the kernels that one call of each configuration (key) launched on a board."""
        with self.reading() as connection:
            visit, campaign, configuration = schema.visit, schema.campaign, schema.configuration
            query = (
                select(configuration.c.key, visit.c.kernels)
                .join(campaign, visit.c.campaign == campaign.c.id)
                .join(configuration, visit.c.configuration_id == configuration.c.id)
                .where(
                    campaign.c.board == board, visit.c.outcome == "ok", visit.c.kernels.is_not(None)
                )
                .where(rows.unforced(visit))
                .order_by(visit.c.started_at, visit.c.id)
            )
            last = {row.key: row.kernels for row in connection.execute(query)}
            return {key: read_json(text) for key, text in last.items()}

    def different_kernels(self, device: str, configurations: Collection[str]) -> dict[str, int]:
        """Return how many different kernels configurations (keys) launch on a device's boards.

        Where boards differ, that of one of them; a configuration whose kernels were not seen is
        left out.
        """
        visit, campaign = schema.visit, schema.campaign
        on_device = select(campaign.c.id).where(campaign.c.device == device)
        query = (
            select(schema.configuration.c.key, visit.c.campaign, visit.c.kernels)
            .join(schema.configuration, visit.c.configuration_id == schema.configuration.c.id)
            .where(visit.c.outcome == "ok", visit.c.kernels.is_not(None), rows.unforced(visit))
        )
        found: dict[str, str] = {}
        with self.reading() as connection:
            # Joined with campaigns, SQLite goes through all visits of the device.
            campaigns = set(connection.execute(on_device).scalars())
            found_in = connection.execute(rows.about(query, visit, configurations))
            for row in found_in.mappings():
                if row["campaign"] in campaigns:
                    found[row["key"]] = max(row["kernels"], found.get(row["key"], ""))
        return {key: len(read_json(kernels)) for key, kernels in found.items()}

    def host_visits(self, board: str) -> list[HostVisit]:
        """Return the host visits of campaigns on a board, oldest first."""
        conditions = matching(schema.campaign, {"board": board})
        return self._seen(rows.HOST_VISIT, schema.host_visit, conditions)

    def _seen(self, codec: Codec[Seen], table: Table, conditions: WhereClauses) -> list[Seen]:
        """Return the visits of campaigns that meet the conditions, oldest first."""
        campaign = schema.campaign
        query = rows.with_key(table).join(campaign, table.c.campaign == campaign.c.id)
        query = query.where(*conditions)
        with self.reading() as connection:
            found = connection.execute(query).mappings().all()
            read: Sequence[ReadRow] = found
            if any(map(are_left_out, (row[name] for row in found for name in APART[table.name]))):
                from opdb.store.sets import looked_up  # reads files, as few commands need

                read = looked_up(connection, table, found)
            return sorted(map(codec.read, read), key=attrgetter("started_at", "id"))

    def host_seen(self, board: str) -> dict[str, list[tuple[str, str]]]:
        """Return the host times of a board's costs by kind, as `usual_host_s` takes them."""
        cost, configuration = schema.cost, schema.configuration
        query = (
            select(configuration.c.kind, configuration.c.json, cost.c.host_time_s)
            .join(configuration, cost.c.configuration_id == configuration.c.id)
            .where(cost.c.board == board, rows.unforced(cost))
        )
        found: dict[str, list[tuple[str, str]]] = {}
        with self.reading() as connection:
            for kind, text, times in connection.execute(query).all():
                found.setdefault(kind, []).append((text, times))
        return found

    def host_blocks(self, board: str) -> dict[tuple[str, Form], int]:
        """Return in how many blocks calls (key and form) were timed, in their longest visit."""
        visit, campaign = schema.host_visit, schema.campaign
        query = rows.with_key(visit).join(campaign, visit.c.campaign == campaign.c.id)
        query = query.where(campaign.c.board == board)
        found: dict[tuple[str, Form], int] = {}
        with self.reading() as connection:
            for row in connection.execute(query).mappings().all():
                call = row["configuration"], row["form"]
                found[call] = max(blocks(row["times"]), found.get(call, 0))
        return found

    def refusals(
        self, device: str, setting: str, configurations: Collection[str]
    ) -> dict[str, str]:
        """Return why a device cannot run configurations (keys) in a setting, as far as it is known.

        Those alone that a visit found unsupported; the reason is the one given last.
        """
        visit, campaign, configuration = schema.visit, schema.campaign, schema.configuration
        query = (
            select(configuration.c.key, visit.c.reason, visit.c.campaign)
            .join(visit, visit.c.configuration_id == configuration.c.id)
            .where(visit.c.setting == setting, visit.c.outcome == "unsupported")
            .where(visit.c.role == "measurement", visit.c.access == "model")
            .order_by(visit.c.started_at)
        )
        # Joined with its campaigns, all that was visited on the device would be gone through.
        on_device = select(campaign.c.id).where(campaign.c.device == device)
        with self.reading() as connection:
            ours = set(connection.scalars(on_device))
            found = connection.execute(rows.about(query, visit, configurations))
            return {key: why or "no reason given" for key, why, of in found if of in ours}


def not_asked_for(device: str | None) -> Select[tuple[int]]:
    """Select the row numbers of the workloads whose operators nobody wants on a device (slug).

    They were compiled for another one, or only sweeps asked for them; on None: the latter.
    """
    table = schema.workload
    swept: ColumnElement[bool] = table.c.swept
    elsewhere = [] if device is None else [table.c.compiled_for != device]
    return select(table.c.id).where(or_(swept, *elsewhere))


def _called(device: str | None) -> Select[tuple[int]]:
    """Select the row numbers of the configurations that workloads call which a device wants."""
    call = schema.call
    wanted = call.c.workload_id.not_in(not_asked_for(device))
    return select(call.c.configuration_id.label("id")).where(wanted).distinct()


def usual_host_s(seen: Iterable[tuple[str, str]]) -> dict[tuple[str, Form], float]:
    """Return the median host time (seconds) of a kind's calls, by `issued_as` and form.

    `seen` are the JSON of configurations and their host times as a cost has them, read only here.
    """
    found: dict[tuple[str, Form], list[float]] = {}
    for text, times in seen:
        by_form: Mapping[Form, Quantity] = HOST_TIMES.decode(times)
        if by_form:
            issued_as = Configuration.from_json(text).issued_as
            for form, quantity in by_form.items():
                found.setdefault((issued_as, form), []).append(quantity.median)
    return {key: median(values) for key, values in found.items()}
