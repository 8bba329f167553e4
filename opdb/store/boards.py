"""Places of measurement: campaigns, devices, boards and hosts, and what is known of each board."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter

from sqlalchemy import Connection, insert, select

from opdb.records import (
    Board,
    BoardCalibration,
    Campaign,
    Device,
    Host,
    HostCalibration,
    Json,
    Profile,
    RunRatios,
    canonical_json,
)
from opdb.store import reading, rows, schema
from opdb.store.connecting import Connected
from opdb.store.documents import read_json, read_run_ratios, run_ratios_as_json
from opdb.store.writing import matching, numbers, upsert


class Boards(Connected):
    """The campaigns of a database, and the boards that they ran on."""

    def save_campaign(self, campaign: Campaign) -> None:
        """Save a campaign with its device, board and host, in place of an earlier save.

        Raises:
            ValueError: its board is of another device than the campaign's.
        """
        if campaign.board.device != campaign.device.slug:
            raise ValueError(
                f"campaign {campaign.id}: board of device {campaign.board.device!r}, "
                f"campaign on {campaign.device.slug!r}"
            )
        with self.writing() as connection:
            _save_board(connection, campaign.device, campaign.board)
            upsert(connection, schema.host, [rows.HOST.row(campaign.host)], ["id"])
            upsert(connection, schema.campaign, [rows.CAMPAIGN.row(campaign)], ["id"])

    def campaigns(self, device: str | None = None, *, board: str | None = None) -> list[Campaign]:
        """Return the campaigns on a device (slug) or board (UUID), oldest first."""
        table = schema.campaign
        conditions = matching(table, {"device": device, "board": board})
        with self.reading() as connection:
            query = select(table).where(*conditions).order_by(table.c.started_at, table.c.id)
            devices = {
                row["slug"]: rows.DEVICE.read(row)
                for row in connection.execute(select(schema.device)).mappings()
            }
            hosts = {
                row["id"]: rows.HOST.read(row)
                for row in connection.execute(select(schema.host)).mappings()
            }
            boards = set(
                map(tuple, connection.execute(select(schema.board.c.uuid, schema.board.c.device)))
            )
            found = []
            for row in connection.execute(query).mappings():
                if (row["board"], row["device"]) not in boards:
                    raise ValueError(f"campaign {row['id']!r} is of a board that is not stored")
                device_of, host = devices[row["device"]], hosts[row["host"]]
                found.append(rows.CAMPAIGN.read(row, device=device_of, host=host))
            return found

    def devices(self) -> list[Device]:
        """Return the devices that were measured, by slug."""
        query = select(schema.device).order_by(schema.device.c.slug)
        return self.records(rows.DEVICE, query)

    def boards(self, device: str | None = None) -> list[Board]:
        """Return the boards of a device (slug), or all, by device and UUID."""
        table = schema.board
        query = select(table).where(*matching(table, {"device": device}))
        query = query.order_by(table.c.device, table.c.uuid)
        return self.records(rows.BOARD, query)

    def hosts(self) -> list[Host]:
        """Return the hosts that issued work, by id."""
        query = select(schema.host).order_by(schema.host.c.id)
        return self.records(rows.HOST, query)

    def save_board(self, device: Device, board: Board) -> None:
        """Save a board and its device; `save_campaign` does so by itself."""
        with self.writing() as connection:
            _save_board(connection, device, board)

    def save_board_calibration(self, calibration: BoardCalibration) -> None:
        """Save what tests of a board found; the board must be stored.

        Raises:
            DatabaseError: it is not, or the calibration's id is taken.
        """
        with self.writing() as connection:
            row = rows.BOARD_CALIBRATION.row(calibration)
            connection.execute(insert(schema.board_calibration), row)

    def board_calibrations(self, board: str | None = None) -> list[BoardCalibration]:
        """Return the calibrations of a board (UUID), or of all, oldest first."""
        table = schema.board_calibration
        query = select(table).where(*matching(table, {"board": board}))
        query = query.order_by(table.c.measured_at, table.c.id)
        return self.records(rows.BOARD_CALIBRATION, query)

    def save_host_calibration(self, calibration: HostCalibration) -> None:
        """Save host times by which a host is held against others; the board must be stored.

        Raises:
            DatabaseError: it is not, or the calibration's id is taken.
        """
        with self.writing() as connection:
            row = rows.HOST_CALIBRATION.row(calibration)
            connection.execute(insert(schema.host_calibration), row)

    def host_calibration(self, host: str) -> HostCalibration | None:
        """Return the last calibration of a host (id); None where there is none."""
        table = schema.host_calibration
        query = select(table).where(table.c.host == host)
        query = query.order_by(table.c.measured_at.desc(), table.c.id).limit(1)
        return next(iter(self.records(rows.HOST_CALIBRATION, query)), None)

    def save_learned(
        self, board: Board, trained_at: str, document: Json, ratios: RunRatios | None = None
    ) -> None:
        """Save what was learned from a board's costs, in place of what was learned before.

        `ratios` are what the measured runs of the device's boards showed of sums.

        Raises:
            DatabaseError: the board is not stored.
        """
        row = {
            "board": board.uuid,
            "device": board.device,
            "trained_at": trained_at,
            "document": canonical_json(document),
            "ratios": None if ratios is None else canonical_json(run_ratios_as_json(ratios)),
        }
        with self.writing() as connection:
            upsert(connection, schema.learned, [row], ["board"])

    def learned(self, device: str) -> dict[str, Json]:
        """Return what was learned from the costs of a device's boards (UUID), oldest first."""
        table = schema.learned
        query = select(table).where(table.c.device == device).order_by(table.c.trained_at)
        with self.reading() as connection:
            return {row.board: read_json(row.document) for row in connection.execute(query)}

    def run_ratios(self, device: str) -> tuple[str, RunRatios]:
        """Return what measured runs showed of sums when that was last learned, and when that was.

        Nothing, at no time (""), where it never was.
        """
        table = schema.learned
        query = (
            select(table.c.trained_at, table.c.ratios)
            .where(table.c.device == device, table.c.ratios.is_not(None))
            .order_by(table.c.trained_at.desc(), table.c.board)
            .limit(1)
        )
        with self.reading() as connection:
            row = connection.execute(query).first()
            return ("", {}) if row is None else (row.trained_at, read_run_ratios(row.ratios))

    def save_profiles(self, profiles: Iterable[Profile]) -> None:
        """Save what hardware counters saw; boards and configurations must be stored.

        Raises:
            DatabaseError: one is not, or a profile's id is taken.
        """
        new = [rows.PROFILE.row(profile) for profile in profiles]
        with self.writing() as connection:
            known = numbers(connection, schema.configuration, [row["configuration"] for row in new])
            for row in new:
                numbered = self.numbered(row, "configuration", known)
                connection.execute(insert(schema.profile), numbered)

    def profiles(self, device: str, configurations: Collection[str] | None = None) -> list[Profile]:
        """Return a device's profiles of these configurations (keys), or of all, oldest first."""
        table = schema.profile
        query = reading.with_key(table).where(table.c.device == device)
        with self.reading() as connection:
            read = reading.of_configurations(connection, query, table, configurations)
            return sorted(map(rows.PROFILE.read, read), key=attrgetter("measured_at", "id"))


def _save_board(connection: Connection, device: Device, board: Board) -> None:
    upsert(connection, schema.device, [rows.DEVICE.row(device)], ["slug"])
    upsert(connection, schema.board, [rows.BOARD.row(board)], ["uuid", "device"])
