"""What is lost when commands are killed (kill -9) at random moments, again and again: nothing.

    python -m benchmarks.kills --kills 100
    python -m benchmarks.kills harvest export --kills 20 --seed 7

Each command runs in a process of its own on the processor, its measuring windows shortened, and is
killed at a moment drawn from the time that it takes undisturbed. Up to `IN_A_ROW` kills strike one
database; then the command runs to its end there. After each kill the database must be whole, hold
everything that the killed process had told of as saved, and show no half of a set, file or model;
after each end, costs must be what the visits give, and the content what an undisturbed run leaves.
Printed is a line a command. Exit status 1 where anything was not so.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from benchmarks.at_scale import DEVICE, ROOT
from opdb.store import Store, open_store
from opdb.store.exchange import export_set, import_set

IN_A_ROW = 10
MOST_FAULTS = 5
SAVES = {"save_visit": 0, "save_model_run": 0, "save_workload": 0}
"""What is noted as soon as it is saved: a method of a store, and which argument has the id."""

TABLES = ("visit", "model_run", "workload")
LOADED = (
    *("torch", "torchvision", "torch._dynamo", "opdb.cli", "opdb.harvest", "opdb.bench.run"),
    *("opdb.bench.model", "opdb.bench.modes", "opdb.api.builds", "opdb.learning"),
    *(
        "opdb.estimates.training",
        "opdb.store.exchange",
        "opdb.store.proving",
        "benchmarks.at_scale",
    ),
)
SUMMARY = "model: {model}\nweights: null\ninput_size: [{size}]\nbatch_sizes: [{sizes}]\n"
LEARNED_KINDS = ("max_pool2d", "adaptive_avg_pool2d")


class FaultError(Exception):
    """Something was lost, half done or told with a traceback."""


@dataclass(frozen=True)
class Place:
    """A folder in which a command works: its database, files, and what it noted and said."""

    folder: Path

    @property
    def database(self) -> Path:
        return self.folder / "opdb.sqlite"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def said(self) -> Path:
        return self.folder / "said"

    def noted(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@dataclass(frozen=True)
class Scenario:
    """A command, what it begins with (a folder to copy), and what must hold.

    `whole` raises where something half done shows; `content` is what two ends must have in common.
    """

    arguments: tuple[str, ...]
    begin: Path
    content: Callable[[Place], Any]
    whole: Callable[[Place], None] = lambda place: None
    ends_with: tuple[int, ...] = (0,)


@dataclass
class Tally:
    """What came of one command."""

    kills: int = 0
    noted: int = 0
    ends: int = 0
    too_late: int = 0
    faults: list[str] = field(default_factory=list)


def shorten() -> None:
    """Make visits and runs of this process as short as can be."""
    import torch

    from opdb.bench import calibrate, model, visit

    torch.set_num_threads(1)
    visit.SETTLE_S, visit.WINDOW_S = 0.005, 0.03
    model.SETTLE_S, model.WINDOW_S, model.MAX_REDONE, model.HOSTS_REDONE = 0.005, 0.03, 0, 0
    calibrate.BASE_WINDOW_S, calibrate.CONTAINER_ROUNDS = 0.02, 5


def note_saves(log: Path) -> None:
    """Let this process note what it saved, as soon as the save returns."""
    for name in SAVES:
        setattr(Store, name, noting(getattr(Store, name), log))


def noting(save: Callable[..., Any], log: Path) -> Callable[..., Any]:
    def saved(store: Store, made: Any, *more: Any, **named: Any) -> Any:
        done = save(store, made, *more, **named)
        with log.open("a") as stream:
            stream.write(f"{getattr(made, 'id', None) or made.key}\n")
        return done

    return saved


def run(place: Place, arguments: tuple[str, ...]) -> None:
    """Run a command of opdb in this process, which it ends."""
    from opdb.cli import main

    os.chdir(place.folder)
    said = os.open(place.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    shorten()
    note_saves(place.log)
    status = main([*arguments, "--db", str(place.database)])
    sys.stdout.flush()
    os._exit(status)


def context() -> Any:
    """Return what starts processes in which all that is heavy is imported."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(list(LOADED))
    return found


def started(place: Place, arguments: tuple[str, ...]) -> Any:
    """Start a command in a process of its own, what is heavy imported before it was forked."""
    process = context().Process(target=run, args=(place, arguments))
    process.start()
    return process


def ended(place: Place, arguments: tuple[str, ...], *, allowed: tuple[int, ...] = (0,)) -> int:
    """Run a command to its end; return its exit status.

    Raises:
        FaultError: it fails, hangs, or shows a traceback.
    """
    process = started(place, arguments)
    process.join(timeout=300)
    check_said(place)
    if process.exitcode not in allowed:
        process.kill()
        raise FaultError(f"{arguments[0]} ended with {process.exitcode}: {place.said.read_text()}")
    return int(process.exitcode)


def check_said(place: Place) -> None:
    said = place.said.read_text() if place.said.exists() else ""
    if "Traceback" in said or "unforeseen" in said:
        raise FaultError(said)


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def check_database(place: Place) -> None:
    """Check that a database is whole and holds what was noted as saved.

    Raises:
        FaultError: it does not.
    """
    if not place.database.exists():
        if place.noted():
            raise FaultError("the database is gone")
        return
    if rows(place.database, "PRAGMA integrity_check") != [("ok",)]:
        raise FaultError("the database is damaged")
    if rows(place.database, "PRAGMA foreign_key_check"):
        raise FaultError("a row refers to one that is not there")
    if place.noted():
        queries = ("SELECT id FROM visit", "SELECT id FROM model_run", "SELECT key FROM workload")
        stored = {key for query in queries for (key,) in rows(place.database, query)}
        if lost := set(place.noted()) - stored:
            raise FaultError(f"saved and lost: {', '.join(sorted(lost))}")


def counted(place: Place, *tables: str) -> dict[str, int]:
    """Return how many rows tables have; {} where there is no database yet."""
    if not place.database.exists() or not rows(
        place.database, "SELECT 1 FROM sqlite_master WHERE name = 'visit'"
    ):
        return {}
    return {t: rows(place.database, f"SELECT count(*) FROM {t}")[0][0] for t in tables}


def workloads_stored(place: Place) -> Any:
    return sorted(rows(place.database, "SELECT key FROM workload")), marks(place)


def marks(place: Place) -> dict[str, Any]:
    """Return the summary files and lists of a place, each of which must be whole."""
    files = sorted(place.folder.glob("models/*.yml"))
    return {f.name: yaml.safe_load(f.read_text()).get("processed") for f in files}


def check_marks(place: Place) -> None:
    """Check that a file that is marked as processed has all its workloads stored."""
    done = sum(mark is True for mark in marks(place).values())
    if done and counted(place, "workload").get("workload", 0) < 2 * done:
        raise FaultError("a summary file is marked, and its workloads are not stored")


def measured(place: Place) -> Any:
    """Return which calls have a cost, all visits good, and the outcomes of runs."""
    costs = "SELECT DISTINCT configuration_id FROM cost ORDER BY 1"
    outcomes = "SELECT DISTINCT outcome FROM visit UNION SELECT outcome FROM model_run"
    ran = "SELECT DISTINCT workload_id, mode FROM model_run ORDER BY 1"
    return [rows(place.database, query) for query in (costs, outcomes, ran)]


SET_TABLES = ("campaign", "visit", "model_run", "cost", "learned", "workload")


def imported(place: Place) -> Any:
    return counted(place, *SET_TABLES)


def check_imported(place: Place, wholes: list[dict[str, int]]) -> None:
    """Check that each set is in as a whole or not at all."""
    found = counted(place, "campaign", "visit", "model_run")
    if found and found not in wholes:
        raise FaultError(f"half a set: {found}; {wholes}")


def check_costs(place: Place, count: int) -> None:
    if counted(place, "cost")["cost"] not in (0, count):
        raise FaultError(f"half of the costs: {counted(place, 'cost')}")


def exported(place: Place) -> Any:
    files = sorted((place.folder / "set").iterdir())  # and nothing else: a folder is an error
    return {file.name: file.read_bytes() for file in files}


def check_exported(place: Place, wholes: list[tuple[int, int]]) -> None:
    """Check that what stands in the folder is refused, or one of the sets as a whole."""
    with tempfile.TemporaryDirectory() as aside:
        other = Place(Path(aside))
        command = ("import", str(place.folder / "set"), "--quiet")
        if ended(other, command, allowed=(0, 2)) == 0:
            found = counted(other, "visit")["visit"]
            runs = counted(other, "model_run")["model_run"]
            if (found, runs) not in wholes:
                raise FaultError(f"two sets taken as one: {found} visits, {runs} runs")


def learned(place: Place) -> Any:
    found = rows(place.database, "SELECT device, board, document FROM learned")
    return [(device, board, len(text) > 1000) for device, board, text in found]


def check_learned(place: Place) -> None:
    for (text,) in rows(place.database, "SELECT document FROM learned"):
        if not text.endswith("}"):
            raise FaultError("half of what was learned")


class Beginnings:
    """The folders that commands begin with, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def new(self, name: str) -> Place:
        place = Place(self.folder / name)
        place.folder.mkdir()
        return place

    def harvested(self, name: str, *models: str) -> Place:
        place = self.new(name)
        ended(place, ("harvest", *models, "-b", "1", "-q"))
        return self.tidy(place)

    def benched(self, name: str, *models: str) -> Place:
        place = self.harvested(name, *models)
        ended(place, ("bench", "--device", "cpu", "-q"))
        ended(place, ("measure", *models, "-b", "1", "--device", "cpu", "--repeats", "1", "-q"))
        return self.tidy(place)

    def exported(self, name: str, place: Place) -> Path:
        with open_store(str(place.database)) as store:
            export_set(store, self.folder / name, device=store.devices()[0].slug)
        return self.folder / name

    @staticmethod
    def tidy(place: Place) -> Place:
        place.log.unlink(missing_ok=True)
        place.said.unlink(missing_ok=True)
        return place


def scenarios(folder: Path, names: list[str]) -> Iterator[tuple[str, Scenario]]:
    """Yield each command that is named with its beginning."""
    made = Beginnings(folder)
    for name in names:
        yield name, globals()[f"{name}_scenario"](made)


def harvest_scenario(made: Beginnings) -> Scenario:
    place = made.new("harvest")
    (place.folder / "models").mkdir()
    for model, size in (("mlp", "784"), ("lstm", "20")):
        text = SUMMARY.format(model=model, size=size, sizes="1, 2")
        (place.folder / "models" / f"{model}.yml").write_text(text)
    return Scenario(("harvest", "models", "-q"), place.folder, workloads_stored, check_marks)


def bench_scenario(made: Beginnings) -> Scenario:
    place = made.harvested("bench", "mlp", "lstm", "transformer")
    return Scenario(("bench", "--device", "cpu", "--duplicates", "0"), place.folder, measured)


def measure_scenario(made: Beginnings) -> Scenario:
    place = made.new("measure")
    command = ("measure", "mlp", "lstm", "--device", "cpu", "--repeats", "1")
    return Scenario(command, place.folder, measured)


def build_scenario(made: Beginnings) -> Scenario:
    place = made.new("build")
    (place.folder / "models").mkdir()
    text = SUMMARY.format(model="mlp", size="784", sizes="1")
    (place.folder / "models" / "mlp.yml").write_text(text)
    command = ("build", "models", "--device", "cpu", "--target", "0.9")
    # Whether the target holds is a matter of how busy this machine is.
    return Scenario(command, place.folder, built, check_lists, ends_with=(0, 1))


def check_lists(place: Place) -> None:
    marks(place)


def built(place: Place) -> Any:
    listed = yaml.safe_load((place.folder / "models" / "significant.yml").read_text())
    _, outcomes, ran = measured(place)
    return sorted(listed), outcomes, ran


def import_scenario(made: Beginnings) -> Scenario:
    sets, wholes = [], []
    for name, model in (("one", "mlp"), ("other", "lstm")):
        place = made.benched(f"import-{name}", model)
        sets.append(made.exported(f"set-{name}", place))
        wholes.append(counted(place, "campaign", "visit", "model_run"))
    none, both = dict.fromkeys(wholes[0], 0), {k: wholes[0][k] + wholes[1][k] for k in wholes[0]}
    check = partial(check_imported, wholes=[none, *wholes, both])
    place = made.new("import")
    return Scenario(("import", *map(str, sets)), place.folder, imported, check)


def derive_scenario(made: Beginnings) -> Scenario:
    place = made.benched("derive", "mlp", "lstm")
    count = counted(place, "cost")["cost"]
    with closing(sqlite3.connect(place.database)) as connection, connection:
        connection.execute("DELETE FROM cost")
    return Scenario(("derive",), place.folder, imported, partial(check_costs, count=count))


def export_scenario(made: Beginnings) -> Scenario:
    """Two boards' worth of one device: the folder holds the smaller set, the larger replaces it."""
    place = made.harvested("export", "mlp")
    wholes = []
    for model in ("mlp", "lstm"):
        ended(place, ("measure", model, "--device", "cpu", "--repeats", "1", "-q"))
        ended(place, ("bench", "--device", "cpu", "-q"))
        [visits, runs] = counted(place, "visit", "model_run").values()
        wholes.append((visits, runs))
        if model == "mlp":
            exported_to = made.exported("export-set", place)
    shutil.copytree(exported_to, place.folder / "set")
    made.tidy(place)
    check = partial(check_exported, wholes=wholes)
    return Scenario(("export", "set"), place.folder, exported, check)


def learn_scenario(made: Beginnings) -> Scenario:
    place = made.new("learn")
    with open_store(str(place.database)) as store:
        import_set(store, ROOT / "db" / DEVICE)
    places = ", ".join("?" * len(LEARNED_KINDS))
    kept = f"(SELECT id FROM configuration WHERE kind NOT IN ({places}))"
    with closing(sqlite3.connect(place.database, isolation_level=None)) as connection:
        for table in ("cost", "visit", "host_visit", "tally"):
            connection.execute(
                f"DELETE FROM {table} WHERE configuration_id IN {kept}", LEARNED_KINDS
            )
        connection.execute("DELETE FROM learned")
        connection.execute("DELETE FROM model_run")
        connection.execute("VACUUM")
    return Scenario(("learn", "--quiet"), place.folder, learned, check_learned)


def copied(scenario: Scenario, folder: Path, number: int) -> Place:
    place = Place(folder / f"{scenario.arguments[0]}-{number}")
    shutil.copytree(scenario.begin, place.folder)
    return place


def finish(scenario: Scenario, place: Place) -> Any:
    """Run a command to its end and return the content; costs must be what the visits give."""
    ended(place, scenario.arguments, allowed=scenario.ends_with)
    check_database(place)
    scenario.whole(place)
    if scenario.arguments[0] != "harvest" and scenario.arguments[0] != "learn":
        ended(place, ("derive", "--check", "-q"))
    return scenario.content(place)


def struck(scenario: Scenario, place: Place, life_s: float) -> bool:
    """Start a command and kill it; return whether it was still at work. Check what is left."""
    process = started(place, scenario.arguments)
    time.sleep(life_s)
    process.kill()
    process.join()
    check_said(place)
    if process.exitcode not in (*scenario.ends_with, -signal.SIGKILL):
        raise FaultError(f"ended by itself with {process.exitcode}: {place.said.read_text()}")
    check_database(place)
    scenario.whole(place)
    return bool(process.exitcode == -signal.SIGKILL)


def kill(
    scenario: Scenario, folder: Path, kills: int, lives: random.Random, until_s: float
) -> Tally:
    """Kill a command so often, or until a moment, at random; return what came of it."""
    tally = Tally()
    began = copied(scenario, folder, 0)
    since_s = time.monotonic()
    ended(began, scenario.arguments, allowed=scenario.ends_with)
    long_s = time.monotonic() - since_s
    wanted = finish(scenario, began)
    number = 0
    while tally.kills < kills and time.monotonic() < until_s:
        number += 1
        place = copied(scenario, folder, number)
        try:
            for _ in range(min(IN_A_ROW, kills - tally.kills)):
                if struck(scenario, place, lives.uniform(0, long_s)):
                    tally.kills += 1
                else:
                    tally.too_late += 1
                    break
            tally.noted += len(place.noted())
            content = finish(scenario, place)
            if content != wanted:
                raise FaultError(f"another content than undisturbed: {content}, {wanted}")
            tally.ends += 1
        except FaultError as fault:
            tally.faults.append(f"{place.folder.name}: {fault}")
            if len(tally.faults) >= MOST_FAULTS:
                break
            continue
        shutil.rmtree(place.folder)
    return tally


COMMANDS = ("harvest", "bench", "measure", "build", "import", "export", "derive", "learn")


@contextmanager
def working_folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="opdb-kills-") as folder:
        yield Path(folder)


def main() -> int:
    """Kill each command as often as asked, and say what was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("commands", nargs="*", choices=[*COMMANDS, []], default=[])
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="of each command")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--seconds", type=float, default=1e9, metavar="S", help="of each, at most")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work here, keep what is found")
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    writer = csv.writer(sys.stdout)
    writer.writerow(["command", "kills", "saved before a kill", "then to the end", "faults", "s"])
    faults = 0
    with working_folder(asked.keep) as folder:
        ready = context().Process(target=int)  # what is imported beforehand counts for no command
        ready.start()
        ready.join()
        for name, scenario in scenarios(folder, asked.commands or list(COMMANDS)):
            since_s = time.monotonic()
            until_s = since_s + asked.seconds
            made = kill(scenario, folder, asked.kills, random.Random(asked.seed), until_s)
            faults += len(made.faults)
            took = round(time.monotonic() - since_s)
            writer.writerow([name, made.kills, made.noted, made.ends, len(made.faults), took])
            sys.stdout.flush()
            for fault in made.faults:
                print(fault, file=sys.stderr, flush=True)
    return int(faults > 0)


if __name__ == "__main__":
    raise SystemExit(main())
