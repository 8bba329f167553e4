"""Measurements of operators: visits, host visits, and what is pending or failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from sqlalchemy import Table, func, insert, select

from opdb.records import Form, HostVisit, Role, Visit
from opdb.store import reading, rows, schema, standing
from opdb.store.connecting import Connected
from opdb.store.documents import read_json
from opdb.store.lease import Claim, check_held
from opdb.store.reading import Conditions, Failure, HostSeen, Spent
from opdb.store.rows import Codec, Row
from opdb.store.samples import APART, are_left_out, blocks
from opdb.store.standing import Standing
from opdb.store.tallies import count_visit
from opdb.store.writing import matching, numbers

Seen = TypeVar("Seen", Visit, HostVisit)


class Visits(Connected):
    """The visits of a database, and what follows from how many there are."""

    def save_visit(self, visit: Visit, claim: Claim | None = None) -> None:
        """Save a visit; its campaign and configuration must be stored, and its claim be held.

        Raises:
            DatabaseError: they are not, or the visit's id is taken.
            ClaimLostError: another worker took the claim over.
        """
        with self.writing() as connection:
            if claim is not None:
                check_held(connection, claim)
            row = rows.VISIT.row(visit)
            known = numbers(connection, schema.configuration, [row["configuration"]])
            row = self.numbered(row, "configuration", known)
            connection.execute(insert(schema.visit), row)
            count_visit(connection, row)

    def save_host_visits(self, visits: Sequence[HostVisit]) -> None:
        """Save host visits, all or none; their campaigns and configurations must be stored.

        Raises:
            DatabaseError: they are not, or a visit's id is taken.
        """
        new = [rows.HOST_VISIT.row(visit) for visit in visits]
        with self.writing() as connection:
            keys = [row["configuration"] for row in new]
            known = numbers(connection, schema.configuration, keys)
            for row in new:
                placed = self.numbered(row, "configuration", known)
                connection.execute(insert(schema.host_visit), placed)

    def standing(self, device: str) -> Standing:
        """Return how far a device (slug) is: what is measured, pending, failed."""
        with self.reading() as connection:
            return standing.standing(connection, device)

    def failures(self, device: str) -> list[Failure]:
        """Return what could not be measured on a device, by kind, with the reason given last."""
        with self.reading() as connection:
            return reading.failures(connection, device)

    def visits(
        self,
        board: str,
        configurations: Collection[str] | None = None,
        *,
        role: Role | None = None,
    ) -> list[Visit]:
        """Return a board's visits, of these configurations and role or of all, oldest first."""
        conditions = matching(schema.campaign, {"board": board})
        conditions += matching(schema.visit, {"role": role})
        return self._seen(rows.VISIT, schema.visit, conditions, configurations)

    def spent(
        self, device: str, board: str | None = None, kinds: Collection[str] | None = None
    ) -> list[Spent]:
        """Return what each configuration's visits took on each board of a device, without anchors.

        Those inside models count, whatever came of them; by key and board. With a board (UUID),
        those on it alone; with `kinds`, those of these kinds.
        """
        with self.reading() as connection:
            visit, campaign, configuration = schema.visit, schema.campaign, schema.configuration
            of_kinds = () if kinds is None else (configuration.c.kind.in_(kinds),)
            query = (
                select(configuration.c.key, configuration.c.kind, campaign.c.board)
                .add_columns(func.sum(visit.c.cost_s))
                .join_from(visit, campaign, visit.c.campaign == campaign.c.id)
                .join(configuration, visit.c.configuration_id == configuration.c.id)
                .where(
                    campaign.c.device == device, visit.c.role != "anchor", visit.c.access == "model"
                )
                .where(reading.unforced(visit), *matching(campaign, {"board": board}), *of_kinds)
                .group_by(configuration.c.key, configuration.c.kind, campaign.c.board)
                .order_by(configuration.c.key, campaign.c.board)
            )
            return [Spent(*row) for row in connection.execute(query)]

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
                .where(reading.unforced(visit))
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
            .where(visit.c.outcome == "ok", visit.c.kernels.is_not(None), reading.unforced(visit))
        )
        found: dict[str, str] = {}
        with self.reading() as connection:
            # Joined with campaigns, SQLite goes through all visits of the device.
            campaigns = set(connection.execute(on_device).scalars())
            for row in reading.of_configurations(connection, query, visit, configurations):
                if row["campaign"] in campaigns:
                    found[row["key"]] = max(row["kernels"], found.get(row["key"], ""))
        return {key: len(read_json(kernels)) for key, kernels in found.items()}

    def host_visits(
        self,
        board: str | None = None,
        configurations: Collection[str] | None = None,
        *,
        host: str | None = None,
    ) -> list[HostVisit]:
        """Return the host visits of campaigns on a board or host (all when None), oldest first."""
        conditions = matching(schema.campaign, {"board": board, "host": host})
        return self._seen(rows.HOST_VISIT, schema.host_visit, conditions, configurations)

    def _seen(
        self,
        codec: Codec[Seen],
        table: Table,
        conditions: Conditions,
        configurations: Collection[str] | None,
    ) -> list[Seen]:
        """Return the visits of campaigns that meet the conditions, oldest first."""
        campaign = schema.campaign
        query = reading.with_key(table).join(campaign, table.c.campaign == campaign.c.id)
        query = query.where(*conditions)
        with self.reading() as connection:
            found = list(reading.of_configurations(connection, query, table, configurations))
            read: Sequence[Row] = found
            if any(map(are_left_out, (row[name] for row in found for name in APART[table.name]))):
                from opdb.store.set_samples import looked_up  # reads files, as few commands need

                read = looked_up(connection, table, found)
            return sorted(map(codec.read, read), key=attrgetter("started_at", "id"))

    def host_seen(self, board: str) -> HostSeen:
        """Return the host times that a board's costs hold, by kind."""
        cost, configuration = schema.cost, schema.configuration
        query = (
            select(configuration.c.kind, configuration.c.json, cost.c.host_time_s)
            .join(configuration, cost.c.configuration_id == configuration.c.id)
            .where(cost.c.board == board, reading.unforced(cost))
        )
        found: dict[str, list[tuple[str, str]]] = {}
        with self.reading() as connection:
            for kind, text, times in connection.execute(query).all():
                found.setdefault(kind, []).append((text, times))
        return HostSeen(found)

    def host_blocks(
        self, board: str, configurations: Collection[str] | None = None
    ) -> dict[tuple[str, Form], int]:
        """Return in how many blocks calls were timed on a board, in the longest of their visits.

        Of these configurations (keys) or of all; by key and form.
        """
        visit, campaign = schema.host_visit, schema.campaign
        query = reading.with_key(visit).join(campaign, visit.c.campaign == campaign.c.id)
        query = query.where(campaign.c.board == board)
        found: dict[tuple[str, Form], int] = {}
        with self.reading() as connection:
            for row in reading.of_configurations(connection, query, visit, configurations):
                call = row["configuration"], row["form"]
                found[call] = max(blocks(row["times"]), found.get(call, 0))
        return found

    def refusals(
        self, device: str, setting: str, configurations: Collection[str]
    ) -> dict[str, str]:
        """Return why a device cannot run configurations (keys) in a setting, as far as it is known.

        Those alone that a visit found unsupported; the reason is the one given last.
        """
        visit = schema.visit
        unsupported = visit.c.setting == setting, visit.c.outcome == "unsupported"
        with self.reading() as connection:
            found = reading.last_reasons(connection, device, configurations, *unsupported)
            return {key: reason or "no reason given" for (key, _), (_, reason) in found.items()}
