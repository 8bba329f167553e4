"""A device's measurements as Parquet files with a card, in the form that data hubs expect.

The card is a README.md whose front matter names the licence and a configuration for each table, as
Hugging Face's hub reads it; other hubs show it as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from opdb.distribution import install
from opdb.errors import InputError
from opdb.records import Json
from opdb.sharing.flat import Flat, Record, meaning

CARD = "README.md"

_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"))


def write_parquet(folder: Path, tables: Iterable[Flat], about: Mapping[str, Json]) -> list[str]:
    """Write each table as a Parquet file, and the card; return the files' names.

    Raises:
        InputError: pyarrow is not installed.
        OSError: a file cannot be written.
    """
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            f"Parquet needs pyarrow, which is not installed; {install('parquet')}"
        ) from error
    columns: dict[Flat, Mapping[str, str]] = {}
    for each in tables:
        table = _arrow(each.rows)
        parquet.write_table(table, folder / f"{each.name}.parquet", compression="zstd")
        columns[each] = {field.name: str(field.type) for field in table.schema}
    (folder / CARD).write_text(card(columns, about), encoding="utf-8")
    return [*(f"{each.name}.parquet" for each in columns), CARD]


def _arrow(rows: Sequence[Record]) -> Any:
    """Return rows as an Arrow table; a column without a value in it is of texts."""
    import pyarrow as pa

    found = pa.Table.from_pylist(list(rows))
    fields = [
        field.with_type(pa.string()) if pa.types.is_null(field.type) else field
        for field in found.schema
    ]
    return found.cast(pa.schema(fields))


def card(columns: Mapping[Flat, Mapping[str, str]], about: Mapping[str, Json]) -> str:
    """Return the card of tables whose columns and types are given."""
    rows = sum(len(each.rows) for each in columns)
    licence = about["licence"]
    head = {
        "license": "unknown" if licence is None else str(licence).lower(),
        "pretty_name": f"opdb: time and energy of PyTorch operators, {about['device']}",
        "language": ["en"],
        "tags": ["pytorch", "gpu", "energy", "benchmark", "performance"],
        "size_categories": [next((name for most, name in _SIZES if rows < most), "1M<n<10M")],
        "configs": [
            {"config_name": each.name, "data_files": f"{each.name}.parquet"} for each in columns
        ],
    }
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n{_intro(about)}\n{''.join(map(_section, columns.items()))}"


def _intro(about: Mapping[str, Json]) -> str:
    versions = "\n".join(
        "- " + ", ".join(f"{name} {value}" for name, value in each.items() if value is not None)
        for each in about["environments"]
    )
    return f"""# Time and energy of PyTorch operators on {about["device"]}

What single PyTorch operators take in time and energy, and whole models beside what is predicted
from their operators, measured with opdb on {len(about["boards"])} boards from
{about["measured_from"]} to {about["measured_to"]}.

```python
from datasets import load_dataset

costs = load_dataset("OWNER/NAME", "costs")  # or "configurations", "runs", …
```

Numbers are in base SI units, and names end with the unit: `_s` seconds, `_j` joules, `_w` watts,
`_hz` hertz. `_low` and `_high` are the ends of a 95 % interval. Tables are joined by
`configuration`, `workload`, `board` and `campaign`. Costs of several boards are never averaged.

It tells nothing of other GPUs, other drivers or other versions of the libraries than these:

{versions}

`manifest.json` has the SHA-256 of each file.
"""


def _section(found: tuple[Flat, Mapping[str, str]]) -> str:
    table, columns = found
    lines = [f"| `{name}` | {kind} | {meaning(name)} |\n" for name, kind in columns.items()]
    head = "| column | type | is |\n|---|---|---|\n"
    return f"\n## {table.name}\n\n{table.about} {len(table.rows)} rows.\n\n{head}{''.join(lines)}"
