"""Derived data: costs, by board and configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import delete, func, select

from opdb.records import AfterOthers, Cost
from opdb.store import reading, rows, schema
from opdb.store.connecting import Connected
from opdb.store.fields import field_of
from opdb.store.reading import Repeated
from opdb.store.schema import QUANTITY_PARTS
from opdb.store.writing import in_parts, numbers, upsert


class Costs(Connected):
    """The costs of a database."""

    def replace_costs(self, board: str, costs: Iterable[Cost]) -> None:
        """Put a board's (UUID) costs in place of those that are there, whatever derived them.

        Raises:
            DatabaseError: a cost's configuration is not stored.
        """
        new = [rows.COST.row(cost) for cost in costs]
        # Two who each delete what the other is about to write would wait for each other.
        with self.writing(alone=True) as connection:
            known = numbers(connection, schema.configuration, [row["configuration"] for row in new])
            numbered = [self.numbered(row, "configuration", known) for row in new]
            connection.execute(delete(schema.cost).where(schema.cost.c.board == board))
            identity = [column.name for column in schema.cost.primary_key]
            upsert(connection, schema.cost, numbered, identity)

    def costs(
        self, board: str, configurations: Collection[str] | None = None
    ) -> dict[str, list[Cost]]:
        """Return a board's costs by configuration key, of these configurations or of all.

        A configuration that has no cost is left out.
        """
        with self.reading() as connection:
            cost = schema.cost
            query = reading.with_key(cost).where(cost.c.board == board)
            found = list(reading.of_configurations(connection, query, cost, configurations))
            found.sort(key=lambda row: (row["configuration"], row["setting"], row["estimator"]))
            by_key: dict[str, list[Cost]] = {}
            for row in found:
                by_key.setdefault(row["configuration"], []).append(rows.COST.read(row))
            return by_key

    def timed_on(self, configurations: Collection[str]) -> dict[str, dict[str, set[str]]]:
        """Return the settings in which configurations (keys) have a time, by board (UUID)."""
        cost, configuration = schema.cost, schema.configuration
        query = (
            select(configuration.c.key, cost.c.board, cost.c.setting)
            .join(cost, cost.c.configuration_id == configuration.c.id)
            .where(cost.c.time_s_median.is_not(None))
        )
        found: dict[str, dict[str, set[str]]] = {}
        with self.reading() as connection:
            for some in in_parts(configurations):
                part = query.where(configuration.c.key.in_(some))
                for key, board, setting in connection.execute(part):
                    found.setdefault(key, {}).setdefault(board, set()).add(setting)
        return found

    def after_others(self, device: str, configurations: Collection[str]) -> dict[str, AfterOthers]:
        """Return what configurations (keys) take longer after others, as a board of a device saw.

        A configuration of which no board saw it is left out.
        """
        cost, board = schema.cost, schema.board
        held = field_of(cost.c.after_others)
        query = (
            select(cost.c.after_others, schema.configuration.c.key)
            .join(schema.configuration, cost.c.configuration_id == schema.configuration.c.id)
            .join(board, cost.c.board == board.c.uuid)
            .where(board.c.device == device, cost.c.after_others.is_not(None))
            .where(reading.unforced(cost))
            .order_by(cost.c.board)
        )
        with self.reading() as connection:
            found = reading.of_configurations(connection, query, cost, configurations)
            return {row["key"]: held.decode(row["after_others"]) for row in found if held.decode}

    def repeated(self, device: str) -> list[Repeated]:
        """Return the costs of a device's boards that are of two visits or more."""
        cost, configuration, board = schema.cost, schema.configuration, schema.board
        names = ("time_s", "energy_j")
        parts = [cost.c[f"{name}_{part}"] for name in names for part in QUANTITY_PARTS]
        query = (
            select(configuration.c.kind, cost.c.visits, *parts)
            .join_from(cost, configuration, cost.c.configuration_id == configuration.c.id)
            .join(board, cost.c.board == board.c.uuid)
            .where(board.c.device == device, cost.c.visits > 1, reading.unforced(cost))
        )
        middle = len(QUANTITY_PARTS)
        with self.reading() as connection:
            return [
                Repeated(
                    kind,
                    visits,
                    rows.joined_quantity(names[0], *seen[:middle]),
                    rows.joined_quantity(names[1], *seen[middle:]),
                )
                for kind, visits, *seen in connection.execute(query)
            ]

    def boards_of_several_sources(self) -> list[str]:
        """Return the boards (UUIDs) whose campaigns came from several sets, or one and from here.

        No set has the costs that follow from all of their visits.
        """
        campaign = schema.campaign
        sources = func.count(func.coalesce(campaign.c.source_id, 0).distinct())
        query = select(campaign.c.board).group_by(campaign.c.board).having(sources > 1)
        return self.scalars(query.order_by(campaign.c.board))

    def cost_counts(self) -> dict[str, int]:
        """Count the costs of every board (UUID) that has any."""
        with self.reading() as connection:
            board = schema.cost.c.board
            query = select(board, func.count().label("costs")).group_by(board)
            return {row.board: row.costs for row in connection.execute(query)}

    def cost_counts_of_workloads(self, keys: Collection[str]) -> dict[tuple[str, str], int]:
        """Count of how many of a workload's configurations a board has costs, by key and board.

        Those of convolutions that were forced to take an algorithm do not count.
        """
        workload, call, cost = schema.workload, schema.call, schema.cost
        query = (
            select(workload.c.key, cost.c.board, func.count(call.c.configuration_id.distinct()))
            .join(call, call.c.workload_id == workload.c.id)
            .join(cost, cost.c.configuration_id == call.c.configuration_id)
            .where(cost.c.time_s_median.is_not(None), reading.unforced(cost))
            .group_by(workload.c.key, cost.c.board)
        )
        with self.reading() as connection:
            return {
                (key, board): count
                for some in in_parts(keys)
                for key, board, count in connection.execute(query.where(workload.c.key.in_(some)))
            }
