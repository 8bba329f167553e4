"""Compare what the commands of two checkouts answer, number for number.

Run it with the Python that has opdb's requirements, from either checkout:

    python -m benchmarks.same_answers OLD_CHECKOUT NEW_CHECKOUT
    python -m benchmarks.same_answers OLD_CHECKOUT --save old.json    # then: old.json NEW_CHECKOUT

Each checkout is copied aside, builds the default database of its own published sets, and runs the
commands of `COMMANDS`, which measure nothing, with `--json`. Every command finds that database as
new. Compared are exit statuses, JSON documents and the CSV files written: numbers by their `repr`,
names as they are. Of sentences (notes, reasons, titles) it counts only that there is one, unless
`--wording` asks for the same words; then what commands print without `--json` is compared too.
Folders, times of day and durations are left aside. `--values` compares which numbers are in an
answer, wherever they stand, for a change of keys and columns. `--only TEXT`, which may be repeated,
runs the commands with that text in them. The exit status is 1 where an answer differs.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from compileall import compile_dir
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

PROFILES = str(Path(__file__).resolve().parents[1] / "tests" / "data")

COMMANDS = (
    """
predict resnet152 --batch-size 32 --target 0.9
predict resnet152 --batch-size 32 --target 0.9999
predict resnet50 --price 2.5 --electricity-price 0.3 --carbon 380
predict resnet50 --mode graph --batch-size 32 --price 2.5
predict resnet50 vit_b_16 --mode eager graph -b 1 32 --price 2.5
predict resnet50 --layers --top 20 -b 32
predict vit_b_16 --layers
predict measurements/training/resnet50.yml
predict mobilenet_v2 vgg16 --phase training -b 32 --layers
predict resnet50 --mode compile -b 1
predict resnet50 bert-base-uncased --mode compile compile:reduce-overhead eager -b 1 32
predict gpt2-bare -b 32 --board GPU-7c54e2c6
predict lstm align -b 1
predict resnet101 -b 32 --no-estimates
predict resnet101 -b 32
predict mlp -b 8 --dtype bfloat16
predict resnet50 --algorithm gemm
predict resnet50 --algorithm winograd -b 1 --layers
predict resnet50 vgg16 --algorithm fft direct
predict regnet_y_400mf --no-harvest
predict nothing
predict
predict resnet50 --batch-size 0
predict resnet50 --device nothing
predict resnet50 --board GPU-nothing
predict resnet50 --dtype float17
predict resnet50 nothing -b 1
predict nothing.yml
validate
validate --within 0.5
validate --within 0.01
validate --mode graph
validate --mode compile,compile:reduce-overhead
validate --duplicates
validate --kernels
validate --mode nothing
modes resnet50 --stored --csv modes.csv
modes vit bert-base-uncased lstm align --stored --csv modes.csv -b 1 2 4 8 16 32
modes nothing --stored
sweep --list-models
sweep --list-algorithms
sweep resnet50 --status --device nvidia-h200
sweep resnet50 vgg16 --stage quick --algorithm all --plan
sweep resnet50 --stage quick --algorithm all --files --output-dir results
sweep resnet152 --stage full --files --output-dir results
sweep resnet50 --algorithm nothing
matrix matrix.yml --plan
matrix matrix.yml --status --csv runs.csv --device nvidia-h200
matrix matrix.yml --plan --only nothing
matrix nothing.yml --plan
build measurements/resnet18.yml measurements/resnet50.yml --plan
build measurements/training --plan --device nvidia-h200
build measurements/nothing.yml --plan
roofline resnet50 -b 32 --csv roofline.csv
roofline vit_b_16 lstm --mode graph --csv roofline.csv --html roofline.html
roofline resnet50 --counters
roofline resnet50 --phase training -b 32
roofline nothing
complexity resnet50 vit_b_16 -b 1 32 --csv complexity.csv
complexity measurements/lstm.yml --phase training
complexity nothing
graph resnet18
graph mlp -o graphs.txt --board GPU-ea87fd5f
graph nothing
list
list models vit
list workloads resnet
list devices
list kinds
list nothing
status
status --device nvidia-h200
status --device nothing
status --jobs nothing
derive --check
derive
derive --device nothing
export set
export set --device nothing
import measurements
import nothing
learn --board GPU-nothing
harvest mlp lstm
harvest resnet18 -b 2
harvest nothing
harvest mlp --batch-size x
bench --grid measurements/grids/conv2d.yml --dry-run
bench nothing
bench --grid nothing.yml
measure nothing
measure mlp --mode nothing
doctor --calibrate --device nothing
submit --dry-run --partition gpu -- sweep vgg16 --stage quick --algorithm all
submit --dry-run -- nothing
nothing
predict resnet50 --nothing
predict llama-3.1-8b --phase decode --context 512 -b 1 --dtype bfloat16
predict llama-3.1-8b --phase prefill --input-size 512 -b 1 --dtype bfloat16 --layers
generate llama-3.1-8b --prompt 512 --tokens 64 -b 1 --dtype bfloat16 --csv points.csv
generate llama-3.1-8b --prompt 128,512 --tokens 32 -b 1 32 --dtype bfloat16 --csv points.csv
generate nothing --prompt 128 --tokens 8
compare resnet50 --mode eager graph -b 32
compare resnet50 vit_b_16 -b 1 32 --mode graph
compare resnet50 --mode eager -b 32 --board GPU-7c54e2c6,GPU-ea87fd5f
compare nothing
show resnet50 -b 32 --top 0
show vit_b_16 --mode graph -b 1 --top 0
show conv2d --top 0
show linear --sort energy --top 0
show fused --top 0
show nothing
trace resnet50 -b 32 -o trace.json
trace vit_b_16 --mode graph -b 1 -o trace.json
trace nothing
annotate PROFILES/h200_profile_bert_base.json.gz -o annotated.json
annotate PROFILES/h200_profile_resnet50.json.gz -o annotated.json
annotate nothing.json
report resnet50 bert-base-uncased -o report.html
report nothing
data
doctor
roofline vgg16 --mode eager -b 128 --csv roofline.csv
complexity resnet50 bert-base-uncased -b 8 --csv complexity.csv
list workloads
sweep vgg16 googlenet --stage quick --algorithm all --files --output-dir results
""".replace("PROFILES", PROFILES)
    .strip()
    .splitlines()
)
"""Commands that measure nothing; what one writes, it writes into its own folder."""

LONG = ("learn",)
"""Commands of a minute and more, which run with --long."""

SWEPT = re.compile(r"--algorithm|^sweep")
"""Commands that need the published sweeps as well."""

RENAMED = {
    "graph": "opdb fx",
    "matrix": "opdb train",
    "list": "opdb show",
    "status": "opdb show",
    "data": "opdb show sets",
    "calibrate": "opdb doctor --calibrate",
    "derive": "opdb.derive",
    "learn": "opdb.estimates",
}
"""What is run (`python -m …`) in a checkout whose help has no command of the older name."""

PROGRESS = re.compile(r"^\w+ \d+/\d+ .*\n?", re.MULTILINE)
"""A line of progress on stderr: whether there is one depends on how fast a command is."""

MATRIX = """\
models: [resnet18, mobilenet_v2]
batch_sizes: [4, 8]
precision: [fp32, amp]
iters: 5
repeats: 2
"""

SENTENCES = re.compile(r"note|reason|what|message|error|why|title|warning|explanation|text|hint")
"""Names of fields and columns that hold sentences."""

VOLATILE = re.compile(r"(^|_)(wall_s|elapsed_s|took_s|now|free_bytes|size_bytes|location)$")
"""Names of fields that say when, where or how fast a command ran."""


@dataclass(frozen=True)
class Answer:
    """What a command answered: its exit status, what it printed, and the files it wrote."""

    status: int
    out: str
    err: str
    files: Mapping[str, str] = field(default_factory=dict)


class Checkout:
    """A copy of a checkout, with default databases that it built of its published sets."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.folder = folder
        for name in ("opdb", "db", "measurements"):
            shutil.copytree(source / name, folder / name, ignore=_DATABASES, symlinks=True)
        compile_dir(folder / "opdb", quiet=1)
        self._database = folder / "db" / "opdb.sqlite"
        self._kept = {False: folder / "usual.sqlite", True: folder / "swept.sqlite"}
        words = self._run("--help", folder).out
        listed = set(re.findall(r"^\W*(\w+)  ", words, re.MULTILINE))
        self._names = {old: new for old, new in RENAMED.items() if old not in listed}
        for sweeps, command in ((False, "status"), (True, "sweep resnet50 --status")):
            self._run(command, folder)
            shutil.copy(self._database, self._kept[sweeps])

    def answer(self, command: str) -> Answer:
        """Run a command on a fresh copy of the database, in a folder of its own."""
        shutil.copy(self._kept[bool(SWEPT.search(command))], self._database)
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            (Path(work) / "measurements").symlink_to(self.folder / "measurements")
            (Path(work) / "matrix.yml").write_text(MATRIX)
            return self._run(command, Path(work))

    def _run(self, command: str, work: Path) -> Answer:
        names = getattr(self, "_names", {})
        name, *words = shlex.split(command)
        environment = {n: v for n, v in os.environ.items() if not n.startswith("OPDB_")}
        environment |= {"PYTHONPATH": str(self.folder), "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            [sys.executable, "-m", *names.get(name, f"opdb {name}").split(), *words],
            cwd=work, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        written = [p for p in sorted(work.rglob("*")) if p.is_file() and p.name != "matrix.yml"]
        files = {} if work == self.folder else {
            str(path.relative_to(work)): self._plain(path.read_text("utf-8", "replace"), work)
            for path in written
        }  # fmt: skip
        out, err = self._plain(done.stdout, work), self._plain(done.stderr, work)
        return Answer(done.returncode, out, err, files)

    def _plain(self, text: str, work: Path) -> str:
        return text.replace(str(work), "WORK").replace(str(self.folder), "CHECKOUT")


_DATABASES = shutil.ignore_patterns("*.sqlite", "*.sqlite-*")


def differences(old: Json, new: Json, *, wording: bool = False, at: str = "") -> Iterator[str]:
    """Yield where two documents differ, each as the path of the field and what it was and is."""
    name = re.sub(r"\[\d+\]$", "", at).rpartition(".")[2]
    if VOLATILE.search(name):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            if key not in old or key not in new:
                yield f"{at}.{key}: only in the {'old' if key in old else 'new'} answer"
            else:
                yield from differences(old[key], new[key], wording=wording, at=f"{at}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{at}: {len(old)} elements, now {len(new)}"
        for index, (was, now) in enumerate(zip(old, new, strict=False)):
            yield from differences(was, now, wording=wording, at=f"{at}[{index}]")
    elif isinstance(old, str) and isinstance(new, str) and not wording and SENTENCES.search(name):
        if bool(old) != bool(new):
            yield f"{at}: {old!r}, now {new!r}"
    elif repr(old) != repr(new):
        yield f"{at}: {old!r}, now {new!r}"


def compare(old: Answer, new: Answer, *, wording: bool = False) -> list[str]:
    """Return how two answers to a command differ, a line for each difference."""
    found = []
    if old.status != new.status:
        found.append(f"exit status {old.status}, now {new.status}: {_last_line(new.err)}")
    found += [f"stdout{line}" for line in _of_texts(old.out, new.out, ".json", wording)]
    if wording and old.err != new.err:
        found += [f"stderr{line}" for line in _of_texts(old.err, new.err, ".txt", wording)]
    elif bool(PROGRESS.sub("", old.err)) != bool(PROGRESS.sub("", new.err)):
        found.append(f"stderr: {_last_line(old.err)!r}, now {_last_line(new.err)!r}")
    for name in sorted({*old.files, *new.files}):
        if name not in old.files or name not in new.files:
            found.append(f"{name}: only the {'old' if name in old.files else 'new'} one writes it")
            continue
        pair = old.files[name], new.files[name]
        found += [f"{name}{line}" for line in _of_texts(*pair, Path(name).suffix, wording)]
    return found


NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")


def numbers_in(answer: Answer) -> set[float]:
    """Return every number of an answer's JSON document and files, wherever it stands."""
    texts = {"stdout.json": answer.out, **answer.files}
    return {value for name, text in texts.items() for value in _numbers(text, Path(name).suffix)}


def _numbers(text: str, suffix: str) -> Iterator[float]:
    if suffix == ".json":
        try:
            yield from _leaves(json.loads(text or "null"))
            return
        except ValueError:
            pass
    if suffix in (".svg", ".png"):
        return
    yield from map(float, NUMBER.findall(text))


def _leaves(document: Json, name: str = "") -> Iterator[float]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield from _leaves(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from _leaves(value, name)
    elif isinstance(document, int | float) and not VOLATILE.search(name):
        yield float(document)


def compare_values(old: Answer, new: Answer) -> list[str]:
    """Return which numbers are in one of two answers only, whatever key they stand under."""
    found = []
    if old.status != new.status:
        found.append(f"exit status {old.status}, now {new.status}: {_last_line(new.err)}")
    was, now = numbers_in(old), numbers_in(new)
    for what, values in (("gone", was - now), ("new", now - was)):
        if values:
            first = ", ".join(f"{value!r}" for value in sorted(values)[:12])
            found.append(f"{len(values)} of {len(was)} numbers {what}: {first}")
    return found


def _of_texts(old: str, new: str, suffix: str, wording: bool) -> Iterator[str]:
    """Yield how two texts differ, read as what the suffix of a file says they are."""
    if old == new:
        return
    if suffix == ".csv":
        csv.field_size_limit(16 * 1024 * 1024)  # sets have long fields
        was, now = (list(csv.reader(io.StringIO(text))) for text in (old, new))
        if was[:1] != now[:1]:
            yield f": columns {was[:1]}, now {now[:1]}"
        else:
            yield from differences(_by_column(was), _by_column(now), wording=wording)
        return
    try:
        documents = json.loads(old or "null"), json.loads(new or "null")
    except ValueError:
        if bool(old) != bool(new) or wording or suffix == ".csv":
            lines = old.splitlines(), new.splitlines()
            yield from differences(list(lines[0]), list(lines[1]), wording=wording)
        return
    yield from differences(*documents, wording=wording)


def _by_column(rows: Sequence[Sequence[str]]) -> list[Json]:
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:200]


def answers_of(source: Path, commands: Sequence[str]) -> dict[str, Answer]:
    """Run commands in a copy of a checkout, or read what an earlier run with --save wrote."""
    if source.is_file():
        kept = json.loads(source.read_text())
        return {command: Answer(**kept[command]) for command in commands if command in kept}
    with tempfile.TemporaryDirectory(prefix="opdb-answers-") as folder:
        checkout = Checkout(source.resolve(), Path(folder))
        answers = {}
        for command in commands:
            began_s = time.monotonic()
            answers[command] = checkout.answer(command)
            spent_s = time.monotonic() - began_s
            print(f"{source.name}: {spent_s:5.1f} s  opdb {command}", file=sys.stderr, flush=True)
        return answers


def report(
    old: Mapping[str, Answer], new: Mapping[str, Answer], *, wording: bool, values: bool = False
) -> int:
    """Print a line for each command and each difference; returns how many commands differ."""
    different = 0
    for command in new:
        found = []
        if command in old:
            pair = old[command], new[command]
            found = compare_values(*pair) if values else compare(*pair, wording=wording)
        different += bool(found)
        told = "differs" if found else "same" if command in old else "not in the old answers"
        print(f"{told:8} {new[command].status}  opdb {command}")
        for line in found[:20]:
            print(f"    {line[:400]}")
        if len(found) > 20:
            print(f"    and {len(found) - 20} more")
    print(f"{len(new)} commands, {different} differ")
    return different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", type=Path, help="a checkout, or what --save wrote")
    parser.add_argument("new", type=Path, nargs="?", help="a checkout")
    parser.add_argument("--only", action="append", metavar="TEXT", help="commands with this text")
    parser.add_argument("--long", action="store_true", help="those too that take minutes")
    parser.add_argument("--wording", action="store_true", help="compare sentences and tables too")
    parser.add_argument("--values", action="store_true", help="compare numbers, not their keys")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the old answers")
    options = parser.parse_args()
    wanted = [*COMMANDS, *(LONG if options.long else ())]
    if options.only:
        wanted = [each for each in (*COMMANDS, *LONG) if any(o in each for o in options.only)]
    if not wanted:
        parser.error("no command has that text in it")
    commands = [f"{each} --json" for each in wanted]
    if options.wording:
        commands += wanted
    with ThreadPoolExecutor(2) as pool:
        sides = [
            pool.submit(answers_of, each, commands) for each in (options.old, options.new) if each
        ]
        answers = [side.result() for side in sides]
    if options.save:
        kept = {command: asdict(answer) for command, answer in answers[0].items()}
        options.save.write_text(json.dumps(kept))
    if options.new is None:
        return 0
    if not options.wording:
        answers[1] = {c: a for c, a in answers[1].items() if c.endswith(" --json")}
    return 1 if report(*answers, wording=options.wording, values=options.values) else 0


if __name__ == "__main__":
    sys.exit(main())
