"""Masks passwords: the one place for texts that may hold a database's URL."""

from __future__ import annotations

import re
from urllib.parse import unquote

MASK = "***"

_USERINFO = re.compile(r"(://[^\s:@/?#]*):\S*@")
"""A user and password, as far as the last @: a password that nobody encoded may hold anything."""

_NO_HOST = re.compile(r"(://[^\s:@/?#\[]*):(?!\d+(?:\W|$)|\*\*\*)[^\s/?#'\"]+")
"""Matches anything that is not a port after the user or host, in a URL that lacks its @."""

_PARAMETER = re.compile(
    r"(?P<before>[?&\s'\"]|^)(?P<name>[\w.%-]+)=(?P<value>[^&\s]+?)(?=[\"',;:)\]}]*(?:[&\s]|$))"
)
_SECRET = re.compile("passw|passfile|passphrase|pwd|secret|token", re.IGNORECASE)


def masked(text: str) -> str:
    """Return a text with `***` for each password in a URL, whether it is a right one or not.

    It masks the password before the host, and the values of parameters named like a password,
    secret or token (`password`, `sslpassword`, `passfile`).
    """
    if "://" in text:
        text = _USERINFO.sub(rf"\1:{MASK}@", text)
        text = _NO_HOST.sub(rf"\1:{MASK}", text)
    return _PARAMETER.sub(_parameter, text) if "=" in text else text


def _parameter(found: re.Match[str]) -> str:
    if not _SECRET.search(unquote(found["name"])):
        return found[0]
    return f"{found['before']}{found['name']}={MASK}"
