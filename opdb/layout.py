"""Text for people: passwords are masked, what a terminal would obey escaped, words fit a width."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from urllib.parse import unquote

GAPS = ("  ", " ")
"""What stands between columns; the second where a table does not fit with the first."""

LEAST_TEXT = 10
"""A column of words is not made narrower than this by breaking them."""

TALLEST = 8
"""Into how many lines at most a cell is wrapped before rows are folded instead."""

_INDENT = "  "
_COMMAND = re.compile(r"(?:^ *|: )(opdb [a-z]\S* .*)$")
_UNIT = re.compile(r"[a-zA-Zµ%][\w%/]{0,3}\b|[%–]")
_BREAKS = " /-_.,:;=()"
"""What a word that is too long for a line is broken after, rather than anywhere."""


def escaped(text: str, *, keep: str = "") -> str:
    r"""Return a text with all that is not printable as Python writes it (`\x1b`), but for `keep`.

    Not printable are control characters, marks that turn the direction of writing, and blanks
    other than the space.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in keep else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode()


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for a wide character."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrapped(text: str, width: int, indent: str | None = None) -> list[str]:
    r"""Return a line as lines of at most `width` columns, those that follow indented.

    A number stays with its unit. A command that ends the line keeps what a shell needs to take it
    over several lines: " \". The indent is by default that of the line and two more.
    """
    if width_of(text) <= width:
        return [text]
    lead = text[: len(text) - len(text.lstrip(" "))][: width // 2]
    indent = (lead + _INDENT if indent is None else indent)[: width // 2]
    found = _COMMAND.search(text)
    if found is None:
        return _filled(lead, _words(text.strip(" ")), width, indent)
    before = text[: found.start(1)].strip(" ")
    lines = _filled(lead, _words(before), width, indent) if before else []
    return [*lines, *_continued(found[1], width, indent if before else lead)]


def _continued(command: str, width: int, indent: str) -> list[str]:
    """Return a command as lines that a shell takes for one; words and quotations stay whole."""
    lines: list[str] = []
    for word in [command] if "'" in command or '"' in command else command.split(" "):
        if lines and width_of(f"{lines[-1]} {word}") <= width - 2:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{indent}{_INDENT}{word}" if lines else f"{indent}{word}")
    return [*(f"{line} \\" for line in lines[:-1]), *lines[-1:]]


def table(
    header: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None
) -> Iterator[str]:
    """Yield a table's lines: the first column and words to the left, numbers to the right.

    Where it is wider than `width`, columns of words and names of columns are wrapped, numbers stay
    whole; where that is not enough, each row is folded: its words, and below them each number
    after its name.
    """
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    left = [
        column == 0 or not all(_is_number(row[column]) for row in rows)
        for column in range(len(header))
    ]
    widths = [max(width_of(line[column]) for line in lines) for column in range(len(header))]
    if width is None or _total(widths, GAPS[0]) <= width:
        yield from _laid(lines, left, widths, GAPS[0])
        return
    for gap in GAPS:
        fitted = _fitted(lines, left, widths, width - _total([0] * len(widths), gap))
        if fitted is not None:
            yield from _laid(lines, left, fitted, gap)
            return
    yield from _folded(lines, left, width)


def _laid(
    lines: Sequence[Sequence[str]], left: Sequence[bool], widths: Sequence[int], gap: str
) -> Iterator[str]:
    """Yield the lines of a table whose columns have these widths."""
    for line in lines:
        cells = [wrapped(cell, each, "") for cell, each in zip(line, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = (
                part + _padding(part, each) if is_left else _padding(part, each) + part
                for part, each, is_left in zip(parts, widths, left, strict=True)
            )
            yield gap.join(padded).rstrip()


def _is_number(cell: object) -> bool:
    return str(cell)[:1].isdigit() or str(cell)[:1] in ("-", "–")


def _padding(text: str, width: int) -> str:
    return " " * (width - width_of(text))


def _total(widths: Sequence[int], gap: str) -> int:
    return sum(widths) + len(gap) * (len(widths) - 1)


def _fitted(
    lines: Sequence[Sequence[str]], left: Sequence[bool], widths: Sequence[int], width: int
) -> list[int] | None:
    """Return widths of columns with this sum, the widest narrowed first; None where none will do.

    They will not do either where a cell would be wrapped into more than `TALLEST` lines.
    """
    least = []
    for column, is_left in enumerate(left):
        name, *cells = [line[column] for line in lines]
        words = min(max(map(_longest, [name, *cells])), LEAST_TEXT)
        least.append(words if is_left else max([_longest(name), *map(width_of, cells)]))
    fitted = list(widths)
    while sum(fitted) > width:
        over = [column for column, each in enumerate(fitted) if each > least[column]]
        if not over:
            return None
        fitted[max(over, key=fitted.__getitem__)] -= 1
    each_cell = (cell for line in lines for cell in zip(line, fitted, strict=True))
    tallest = max(len(wrapped(cell, narrowed, "")) for cell, narrowed in each_cell)
    return fitted if tallest <= TALLEST else None


def _longest(text: str) -> int:
    return max(map(width_of, _words(text)), default=0)


def _folded(lines: Sequence[Sequence[str]], left: Sequence[bool], width: int) -> Iterator[str]:
    """Yield each row as its first words, and below them the other cells, each after its name."""
    header, *rows = lines
    if not rows:
        yield from wrapped(GAPS[0].join(header), width)
    words = next((column for column, is_left in enumerate(left) if not is_left), len(left))
    for row in rows:
        yield from wrapped(GAPS[0].join(row[:words]), width)
        told = [f"{name} {cell}".strip() for name, cell in zip(header, row, strict=True)]
        yield from _filled(
            _INDENT, [f"{each};" for each in told[words:-1]] + told[words:][-1:], width, _INDENT
        )


def _words(text: str) -> list[str]:
    """Return what a text may be wrapped between: its words, each number with its unit."""
    words: list[str] = []
    for word in text.split(" "):
        if words and words[-1][-1:].isdigit() and _UNIT.fullmatch(word.rstrip(",;:.)")):
            words[-1] += f" {word}"
        else:
            words.append(word)
    return words


def _filled(start: str, words: Sequence[str], width: int, indent: str) -> list[str]:
    """Return lines of at most `width` columns made of words; one longer than a line is broken."""
    lines, fresh = [start], True
    for word in words:
        if not fresh and width_of(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
            continue
        if not fresh:
            lines.append(indent)
        while word and width_of(lines[-1] + word) > width:
            kept = _beginning(word, width - width_of(lines[-1]))
            lines[-1] += kept
            lines.append(indent)
            word = word.removeprefix(kept).lstrip(" ")
        lines[-1] += word
        fresh = not word
    return [line.rstrip(" ") for line in lines]


def _beginning(word: str, width: int) -> str:
    """Return what of a word fits, up to a place where it may be broken if there is one."""
    fits = next(n for n in range(len(word), 0, -1) if n == 1 or width_of(word[:n]) <= width)
    broken = max(word.rfind(each, 0, fits) for each in _BREAKS) + 1
    return word[: broken if broken > fits // 3 else fits]


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
