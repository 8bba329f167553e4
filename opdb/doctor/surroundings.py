"""Judge what lies around the GPU: tools, database, disks, extras. Pure."""

from __future__ import annotations

from opdb.compile.toolchain import INSTALL, INSTALL_TRITON
from opdb.counters import ncu
from opdb.distribution import install
from opdb.doctor.facts import DatabaseFacts, Facts
from opdb.doctor.finding import Finding, blocks, fine, note, unknown
from opdb.units import show

FULL_BYTES = 200e6
"""With less free than this a disk counts as full: a bench, or one compiled model, may fill it."""

LOW_BYTES = 2e9

PURPOSES = {
    "estimates": "opdb learn",
    "plots": "pictures",
    "postgres": "a PostgreSQL database",
    "slurm": "opdb submit",
    "transformers": "models of transformers",
}
"""What each extra is for."""


def compiler(facts: Facts) -> Finding:
    """Judge whether inductor and Triton find a compiler and Python's headers."""
    found = facts.tools.toolchain
    lacks = [*found.no_cxx, *found.no_cc, *found.no_header]
    if not lacks:
        return fine("compiler", str(found.cxx))
    return note(
        "compiler",
        ", ".join(lacks),
        f"torch.compile needs it, eager and graph do not: {INSTALL}.",
    )


def switches(facts: Facts) -> Finding:
    """Judge whether the environment lets torch compile and trace; torch does not say."""
    off = facts.tools.switched_off
    if not off:
        return fine("compiling", "not switched off")
    names = " ".join(switch.split("=")[0] for switch in off)
    return note(
        "compiling",
        f"switched off by {', '.join(off)}",
        f"Modes that compile or trace need it, eager and graph do not: unset {names}.",
    )


def triton(facts: Facts) -> Finding:
    """Judge whether inductor has Triton, which it compiles for GPUs with."""
    found = facts.tools.toolchain.triton
    if found is not None:
        return fine("Triton", found)
    return note(
        "Triton",
        "none",
        f"torch.compile needs it on a GPU, eager and graph do not: {INSTALL_TRITON}.",
    )


def nsight(facts: Facts) -> Finding:
    """Judge whether Nsight Compute is there to count with."""
    tools = facts.tools
    if tools.ncu is not None:
        return fine("Nsight Compute", tools.ncu)
    if tools.ncu_elsewhere is not None:
        folder = tools.ncu_elsewhere.rpartition("/")[0]
        return note(
            "Nsight Compute",
            f"{tools.ncu_elsewhere}, not on PATH",
            f"Put it on PATH: export PATH=$PATH:{folder}.",
        )
    return note(
        "Nsight Compute",
        "no ncu on PATH",
        f"Only hardware counters need it: {ncu.INSTALL} and put ncu on PATH.",
    )


def counters(facts: Facts) -> Finding:
    """Judge whether this user may read the GPU's performance counters."""
    restricted = facts.nvidia.counters_restricted
    if restricted is None:
        return unknown(
            "counter permission",
            "/proc/driver/nvidia/params does not say",
            "On the machine with the GPU, opdb doctor tells.",
        )
    if not restricted:
        return fine("counter permission", "every user")
    if facts.nvidia.privileged:
        return fine("counter permission", "administrators, and this process is one")
    return note(
        "counter permission",
        "administrators alone (RmProfilingAdminOnly: 1)",
        f"Only ncu needs it: {ncu.PERMISSION}.",
    )


def processor_energy(facts: Facts) -> Finding:
    """Judge whether the processor's energy can be read."""
    if facts.rapl_reason is None:
        return fine("processor energy", "RAPL")
    return note(
        "processor energy",
        facts.rapl_reason,
        "Only bench --device cpu needs it, and measures times without it; where RAPL is there, "
        "run as root.",
    )


def database(facts: Facts) -> Finding:
    """Judge whether the database can be read, written, and is of this version."""
    found = facts.database
    if not found.is_file:
        return _server(found)
    if found.problem is not None:
        again = ", or restore it, or delete it and import its sets again"
        return blocks(
            "database",
            f"{found.location}: {found.problem}",
            f"Name another with --db (or OPDB_DB){'' if found.foreign else again}.",
        )
    if not found.writable:
        return blocks(
            "database",
            f"{found.location}: cannot be written",
            "Give this user the file and its folder, or name another with --db.",
        )
    return _schema(found)


def _schema(found: DatabaseFacts) -> Finding:
    if not found.size_bytes:
        return fine("database", f"{found.location}: none yet, the first command makes it")
    size = show(found.size_bytes, "B", digits=3)
    said = f"{found.location}, {size}, schema {found.revision}"
    if found.integrity not in (None, "ok"):
        return blocks(
            "database",
            f"{said}: {found.integrity}",
            "It is damaged: restore it, or delete it and import its published sets again.",
        )
    newest = found.revisions[-1]
    if found.revision not in found.revisions:
        upgrade = "Upgrade opdb"
        if str(found.revision) < found.revisions[0]:
            upgrade = f"Check out commit {found.upgraded_by} of opdb and run its opdb status once"
        return blocks(
            "database",
            f"{said}, unknown to this opdb ({newest})",
            f"{upgrade}, or name another database with --db.",
        )
    if found.revision != newest:
        return note(
            "database",
            f"{said}, older than this opdb's {newest}",
            "Copy the file if older versions of opdb read it too; the next command upgrades it "
            "(opdb status).",
        )
    if found.integrity is None:
        return unknown(
            "database",
            f"{said}, too large to check at once",
            f"Check it with sqlite3 '{found.location}' 'PRAGMA integrity_check'.",
        )
    return fine("database", f"{said}, whole")


def _server(found: DatabaseFacts) -> Finding:
    """Judge a database that is a server's, or a name that is none."""
    if found.driver_missing:
        return blocks(
            "database",
            f"{found.location}: its driver is missing",
            f"Install it: {install('postgres')}.",
        )
    if found.problem is not None:
        return blocks(
            "database",
            f"{found.location}: {found.problem}",
            "Name another with --db, or see to its server.",
        )
    if not found.writable:
        return blocks(
            "database",
            f"{found.location}: it answers, and this user may not write it",
            "Ask its owner for the rights to insert, update and delete, or name another with --db.",
        )
    if found.revision is None:
        return fine("database", f"{found.location}: it answers; empty, the first command fills it")
    if found.revision != found.revisions[-1]:
        return note(
            "database",
            f"{found.location}: it answers, schema {found.revision}, older than this opdb's "
            f"{found.revisions[-1]}",
            "The next command upgrades it for all (opdb status); older versions of opdb cannot "
            "use it then.",
        )
    return fine("database", f"{found.location}: it answers, schema {found.revision}")


def disks(facts: Facts) -> list[Finding]:
    """Judge the free space on each file system that opdb writes to."""
    return [_disk(each.folder, each.holds, each.free_bytes) for each in facts.disks]


def _disk(folder: str, holds: str, free_bytes: int | None) -> Finding:
    if free_bytes is None:
        return unknown("disk", f"{folder} ({holds})", f"See with df {folder} whether it is there.")
    said = f"{show(free_bytes, 'B', digits=3)} free in {folder} ({holds})"
    if free_bytes < FULL_BYTES:
        advice = f"Free some space in {folder}, or move {holds} elsewhere"
        return blocks("disk", said, f"{advice} (--db, TORCHINDUCTOR_CACHE_DIR, TMPDIR).")
    if free_bytes < LOW_BYTES:
        return note("disk", said, f"Free some space in {folder} before a long bench.")
    return fine("disk", said)


def extras(facts: Facts) -> list[Finding]:
    """Judge each optional part that lacks a package."""
    if facts.extras is None:
        return [unknown("extras", "opdb runs without being installed", f"Install it: {install()}.")]
    if not facts.extras:
        return [fine("extras", "none missing")]
    return [
        note(
            f"extra {extra}",
            f"missing: {', '.join(packages)}",
            f"Only {PURPOSES.get(extra, f'what {extra} adds')} needs it: {install(extra)}.",
        )
        for extra, packages in facts.extras.items()
    ]
