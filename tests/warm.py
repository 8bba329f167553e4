"""Python with torch and its compiler loaded beforehand: a process of it starts in milliseconds.

`command(...)` is taken as `[sys.executable, ...]` is, where how Python starts is not what a test
looks at. It is a small program that sends its arguments, its environment, its folder and its open
files to a server, which forks; it hands on signals, ends as the fork does, and the fork is killed
where it is.
"""

from __future__ import annotations

import array
import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import types
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

LOADED = (
    *("torch", "torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codegen.cpp"),
    *("torch._inductor.lowering", "torch._inductor.scheduler", "torchvision", "opdb.cli"),
    *("opdb.harvest", "opdb.bench.run", "opdb.bench.model", "opdb.bench.modes", "opdb.store"),
)
"""What the server imports before it forks."""

HANDED_ON = (signal.SIGINT, signal.SIGTERM)


def command(*arguments: str) -> list[str]:
    """Return a command line that runs `python *arguments` (`-c`, `-m` or a file come first)."""
    return [sys.executable, "-S", "-E", __file__, _address(), *arguments]


def load_before_forks(*modules: str) -> None:
    """Let multiprocessing's forkserver of this process load these modules, too, if it is to start.

    The first harvest of a process imports torch's compiler by way of torchvision.
    """
    import multiprocessing  # the small program, which begins often, needs none

    multiprocessing.get_context("forkserver").set_forkserver_preload([*LOADED, *modules])


@cache
def _address() -> str:
    """Start the server of this process and return where it listens."""
    from tests.paths import python_path  # the server and the small program have no such package

    address = str(Path(tempfile.mkdtemp(prefix="opdb-warm-"), "socket"))
    server = subprocess.Popen(
        [sys.executable, __file__, address],
        env={**os.environ, "PYTHONPATH": python_path()},  # of two checkouts, this one
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"
    atexit.register(_end, server, address)
    return address


def _end(server: subprocess.Popen[bytes], address: str) -> None:
    server.communicate()
    Path(address).unlink()
    Path(address).parent.rmdir()


def serve(address: str) -> NoReturn:
    """Load what takes long, and fork for each client until stdin is closed."""
    beside = str(Path(__file__).parent)
    sys.path[:] = [each for each in sys.path if each != beside]
    for name in LOADED:
        __import__(name)
    gc.freeze()  # or each fork would look through all of it for garbage, and so copy it
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("ready", flush=True)
    while listening in select.select([listening, sys.stdin], [], [])[0]:
        client, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _attend(client)
        client.close()
    sys.exit()


def _attend(client: socket.socket) -> NoReturn:
    """Fork once more, tell the client the fork's id and, once it has ended, its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked, files = _received(client)
    child = os.fork()
    if child == 0:
        client.close()
        _become(asked, files)
    for file in files:
        os.close(file)
    with suppress(OSError):  # who asked may be gone, which shows below
        client.sendall(f"{child}\n".encode())
    ended = os.pidfd_open(child)
    if ended not in select.select([client.fileno(), ended], [], [])[0]:  # who asked was killed
        os.kill(child, signal.SIGKILL)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _received(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return what a client asks for, and its first three files."""
    files = array.array("i")
    said, ancillary, _, _ = client.recvmsg(1 << 16, socket.CMSG_SPACE(3 * files.itemsize))
    for _, _, data in ancillary:
        files.frombytes(data)
    while not said.endswith(b"\n"):
        said += client.recv(1 << 16)
    return json.loads(said), list(files)


def _become(asked: dict[str, Any], files: list[int]) -> NoReturn:
    """Run what was asked for, as Python runs it, and end the process."""
    status: object = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
        held = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:] = ["", *filter(None, held), *sys.path]
        status = _run(*asked["arguments"])
    except SystemExit as end:
        status = end.code
    except KeyboardInterrupt:
        status = 130
    except BaseException:  # noqa: BLE001  as Python does
        traceback.print_exc()
    _leave(status)


def _run(how: str, *arguments: str) -> int:
    sys.modules.pop("__mp_main__", None)  # this very file, for multiprocessing
    sys.argv[:] = [how, *(arguments[1:] if how in ("-c", "-m") else arguments)]
    if how == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(arguments[0], "<string>", "exec"), main.__dict__)
    elif how == "-m":
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(how, run_name="__main__")
    return 0


def _leave(status: object) -> NoReturn:
    """End as Python does with this status, of which it prints a text."""
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 120
    os._exit(status or 0)


def ask(address: str, arguments: list[str]) -> NoReturn:
    """Let a server run what this process was asked to run, and end as it does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)  # until there is a child to hand them to
    asked = {"arguments": arguments, "environment": dict(os.environ), "folder": str(Path.cwd())}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        said = json.dumps(asked).encode() + b"\n"
        files = array.array("i", [0, 1, 2])
        sent = server.sendmsg([said], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        server.sendall(said[sent:])
        answers = server.makefile()
        child = int(answers.readline())
        # A handler in Python could wait for ever: a signal that comes between the interpreter's
        # last look and the read is seen after it.
        said_here, said_there = os.pipe()
        os.set_blocking(said_there, False)
        signal.set_wakeup_fd(said_there)
        for number in HANDED_ON:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
        while said_here in select.select([server.fileno(), said_here], [], [])[0]:
            os.kill(child, os.read(said_here, 1)[0])
        status = int(answers.readline())
    if status < 0:  # a signal ended it
        with suppress(OSError):  # SIGKILL has no other way to be handled
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[2:]:
        ask(sys.argv[1], sys.argv[2:])
    serve(sys.argv[1])
