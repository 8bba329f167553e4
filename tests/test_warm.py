"""A process that a warm server forks is as one that Python starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests import warm

TOLD = """
import os, sys
print(sys.argv, sys.path[0] == "", os.getcwd(), os.environ.get("GIVEN"), sys.stdin.read())
print("an error", file=sys.stderr)
sys.exit(3)
"""


def test_arguments_streams_folder_environment_and_status_are_those_given(tmp_path: Path) -> None:
    ran = [
        subprocess.run(
            [*python, "-c", TOLD, "a", "b c"],
            cwd=tmp_path,
            env={**os.environ, "GIVEN": "told"},
            input="said",
            capture_output=True,
            text=True,
            check=False,
        )
        for python in ([sys.executable], warm.command())
    ]
    assert len({(each.returncode, each.stdout, each.stderr) for each in ran}) == 1
    assert ran[0].returncode == 3 and "told" in ran[0].stdout and "said" in ran[0].stdout


def test_ctrl_c_comes_through() -> None:
    # In short sleeps: a signal that comes just before one ends it after the sleep.
    program = "import time; print('begun', flush=True)\nfor _ in range(6000): time.sleep(0.01)"
    with subprocess.Popen(warm.command("-c", program), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130


def test_kill_9_kills_it() -> None:
    program = "import time; print('begun', flush=True); time.sleep(60)"
    with subprocess.Popen(warm.command("-c", program), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        process.kill()
        began_s = time.monotonic()
        assert process.stdout.read() == b"", "nobody holds it open"
        assert process.wait() == -signal.SIGKILL and time.monotonic() - began_s < 30
