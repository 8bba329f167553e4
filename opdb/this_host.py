"""This machine as a host: what issues the work here. Imports no torch."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from pathlib import Path

from opdb.records import Host


def this_host() -> Host:
    """Describe the issuing machine; the id is a hash, so that no host name is published."""
    cpu = _cpu_name()
    machine = Path("/etc/machine-id")
    identity = machine.read_text() if machine.exists() else platform.node()
    text = f"{identity}|{cpu}"
    return Host(
        id=hashlib.sha256(text.encode()).hexdigest()[:16],
        cpu=cpu,
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release()}",
    )


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or f"{sys.platform} {platform.machine()}"
