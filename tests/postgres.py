"""A PostgreSQL server of the tests' own: a cluster in a temporary folder, reached by a socket."""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from opdb.packaging import install
from tests import shared

DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian and Ubuntu put the server's programs, one folder a version, not on PATH."""

NOT_FLUSHED = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off"


def missing() -> str | None:
    """Return why no server can be started here; None where one can."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return f"psycopg is not installed ({install('postgres')})"
    if programs() is None:
        return "PostgreSQL's server is not installed (apt install postgresql)"
    return None


def programs() -> Path | None:
    """Return the folder of initdb and postgres, of the newest version there is."""
    versions = [path.parent for path in DEBIAN.glob("*/bin/initdb")]
    if versions:
        return max(versions, key=lambda path: float(path.parent.name))
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def nobody_special() -> str | None:
    """Return the user to run the server as: root's is refused. None: this user."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


@dataclass
class Server:
    """A running server; each database is made when it is asked for."""

    folder: Path
    bin: Path
    user: str | None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.bin / program), *arguments],
            cwd=self.folder,
            user=self.user,
            extra_groups=None if self.user is None else [],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
        return done.stdout

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://opdb@/{database}?host={self.folder}"

    def new_database(self) -> str:
        name = f"test_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def sql(self, statement: str, database: str = "postgres") -> None:
        import psycopg

        place = f"host={self.folder} user=opdb dbname={database}"
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(statement)

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses= -c max_connections=60 {NOT_FLUSHED}"
        log = str(self.folder / "log")
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", log, "-o", options, "start")

    def stop(self, how: str = "immediate") -> None:
        """Stop the server, connections or not."""
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", how, "stop")


@contextmanager
def server() -> Iterator[Server]:
    """Start a server of its own on a socket; stop it and remove all of it at the end."""
    bin_folder = programs()
    assert bin_folder is not None
    # Not pytest's own folder: the server's user could not reach it, and a socket's path is short.
    folder, user = (
        Path(tempfile.mkdtemp(prefix="opdb-pg-", dir=shared.in_memory())),
        nobody_special(),
    )
    if user is not None:
        shutil.chown(folder, user)
    made = Server(folder, bin_folder, user)
    try:
        made.run(
            "initdb",
            *("-D", str(folder / "data"), "-U", "opdb", "-A", "trust", "-E", "UTF8", "-N"),
            *_people_order(made),
        )
        made.start()
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder)


def _people_order(made: Server) -> tuple[str, ...]:
    """Return the options of a cluster that sorts text as people do, as most servers are set up."""
    version = re.search(r"\d+", made.run("postgres", "--version"))
    if version is None or int(version[0]) < 15:
        return ("--locale=C",)
    return ("--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US")
