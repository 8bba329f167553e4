"""`ModelSpec`: which model is meant, and for which work; each of its options is declared once.

A field's `Option` gives its option of the command line, its key in summary files, Python's keyword,
the key in JSON, the allowed values, the words of a title and the help. Importing this module
imports no torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, cast, get_args

from opdb.checkpoints import published_dtype
from opdb.errors import InputError, UnknownNameError
from opdb.records import Json, Mode, Phase, Workload
from opdb.tables import Column, Row

SOURCES = ("builtin", "torchvision", "transformers", "timm", "python")
"""Where models come from, in the order in which a bare name is looked up: `opdb.models.SOURCE`."""

TOKENS = 128
"""The tokens of a text, unless the model has positions for fewer."""

USUAL_IMAGE = (3, 224, 224)
"""The input of most models of images, which titles leave out."""

DTYPES = ("float32", "float64", "float16", "bfloat16")
SHORT_DTYPES = {"fp32": "float32", "fp64": "float64", "fp16": "float16", "bf16": "bfloat16"}
MIXED = "+"  # between the dtypes of a model of one's own that has several
MEMORY_FORMATS = ("contiguous", "channels_last")
GENERATION_PHASES = ("prefill", "decode", "generate")
"""What a causal decoder does: read a prompt into an empty cache, add one token to a sequence, or
both by transformers' own `generate`, with all that it calls in between."""

PHASES = get_args(Phase)
CACHES = ("static", "dynamic")
"""The caches of keys and values: allocated at once and written in place, or grown by each step."""

EXPERTS = ("batched_mm", "grouped_mm")
"""How a mixture's experts are multiplied: by a weight gathered for each row, or in groups."""

AUTOCASTS = ("bfloat16", "float16")
OPTIMIZERS = ("sgd", "adamw")
"""The optimizers that a training step may end with: SGD with a momentum of 0.9, or AdamW."""


@dataclass(frozen=True)
class Option:
    """How a field of `ModelSpec` is written and checked.

    `kind` says what its values are. `data` names the entry of a workload's inputs that holds it,
    where it is no column. `words` is how titles write it; `unsaid` is the value that they leave
    out. An option without `help` is not one of the command line, one without `key` not one of
    summary files; those that do not `vary` are the same for all variants of a file.
    """

    kind: Literal["name", "text", "word", "count", "number", "size", "mapping", "switch"]
    help: str = ""
    metavar: str = ""
    allowed: tuple[str, ...] = ()
    data: str | None = None
    words: str = ""
    unsaid: object = None
    key: str | None = ""
    flag: str = ""
    short: str | None = None
    varies: bool = True
    name: str = ""

    @property
    def allowed_text(self) -> str:
        return _KINDS[self.kind][0].format(", ".join(self.allowed))

    def allows(self, value: object) -> bool:
        return value in self.allowed if self.kind == "word" else _KINDS[self.kind][1](value)

    def parse(self, value: object) -> object:
        """Return a value that was given in Python or on the command line, checked.

        Sizes may be text ("3x224x224"), dtypes short names ("bf16").
        """
        if self.kind == "size":
            if isinstance(value, str):
                return parse_size(value)
            value = tuple(value)  # type: ignore[arg-type]
        if self.kind == "word" and isinstance(value, str):
            value = SHORT_DTYPES.get(value, value)
        return self.checked(value, self.flag)

    def checked(self, value: object, what: str) -> object:
        """Return a value that is allowed; `what` names it in the error of another."""
        if self.allows(value):
            return value
        if self.kind == "word":
            raise UnknownNameError(what, str(value), self.allowed)
        shown = list(value) if isinstance(value, tuple) else value
        raise InputError(f"{what} {shown!r}; allowed: {self.allowed_text}")


def is_import_path(name: str) -> bool:
    """Return whether a name is a model of one's own, as in "package.module:callable"."""
    return ":" in name and not name.startswith("timm:")


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**63


_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a model's name", lambda value: isinstance(value, str) and bool(value)),
    "text": (
        "null (random) or the name of published weights",
        lambda value: isinstance(value, str),
    ),
    "word": ("one of {}, or null", lambda value: isinstance(value, str)),
    "count": ("a whole number of 1 or more", is_count),
    "number": (
        "a number of 0 or more",
        lambda value: type(value) in (int, float) and 0 <= value < math.inf,
    ),
    "size": (
        "one input's shape without the batch, such as [3, 224, 224], or null",
        lambda value: isinstance(value, list | tuple) and bool(value) and all(map(is_count, value)),
    ),
    "mapping": (
        "a mapping of args and kwargs, or null",
        lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
    ),
    "switch": ("true or false", lambda value: isinstance(value, bool)),
}
"""What an option of each kind may be: in words, and as a function that tells."""


def _option(kind: Any, help: str = "", metavar: str = "", **more: Any) -> Any:
    default = False if kind == "switch" else None
    return field(default=default, metadata={"option": Option(kind, help, metavar, **more)})


_GENERATION: Any = {"data": "generation"}


@dataclass(frozen=True)
class ModelSpec:
    """A model, and the work that it is asked for; None stands for what is not given.

    Without a `name` it holds options alone, to be applied to another one (`changed`); phase,
    optimizer and accumulation may be None only there. With a name, what a name means is filled in:
    the phase inference, one batch a step of SGD and, unless the name is an import path, the
    dtype that a checkpoint is published in, else float32; contiguous; batch 1. A model from an
    import path, and its inputs, count as they are built.

    `source` None is found from the name. `weights` None means random weights; nothing is ever
    downloaded otherwise. `input_size` is one input's shape without the batch. `inputs` describes
    inputs that a size cannot express, as data:

        {"args": [{"shape": ["batch", 128], "dtype": "int64", "values": {"range": [0, 30522]}}],
         "kwargs": {...}}

    where "batch" stands for the batch size, a list for a list, {"tuple": [...]} for a tuple, any
    other object for a dict, and everything else for itself.

    `accumulation` is the number of batches whose gradients add up before the optimizer steps. The
    prompt of a prefill, or of a whole generation of `max_new_tokens`, is its input size; `context`
    is how many positions are filled before a decoding step, `cache_length` how many a static cache
    has. `experts` is by default as transformers' `generate` chooses on a GPU: in groups in a
    prefill, gathered in a step. `imbalance` is how unevenly a router fills groups (see
    `opdb.kinds.products.active_groups`).

    `named_in` is the file, or other data of somebody's, that names the model, where no code may be
    run that it names; None where the user names it, or allows the code. `built_by` is called to
    build a model that Python holds, whose name (an import path) then finds nothing.
    """

    name: str = _option("name", key="model", varies=False)
    source: str | None = _option("word", allowed=SOURCES, varies=False)
    weights: str | None = _option("text", varies=False)
    batch_size: int | None = _option(
        "count", "Batch size.", "N", short="-b", words="batch {}", key="batch_sizes"
    )
    dtype: str | None = _option(
        "word",
        "As in float32, bfloat16, float16.  [default: as published, as built, else float32]",
        "DTYPE",
        allowed=DTYPES,
        words="{}",
    )
    memory_format: str | None = _option(
        "word",
        "contiguous or channels_last.",
        "FORMAT",
        allowed=MEMORY_FORMATS,
        words="{}",
        unsaid=MEMORY_FORMATS[0],
    )
    input_size: tuple[int, ...] | None = _option(
        "size", "One input without the batch, as in 3x224x224.", "SIZE"
    )
    autocast: str | None = _option(
        "word",
        "As under autocast on a GPU: bfloat16 or float16.  [default: none]",
        "DTYPE",
        allowed=AUTOCASTS,
        words="autocast {}",
    )
    phase: Phase = _option(  # noqa: RUF009
        "word",
        "inference, training, prefill or decode.",
        "PHASE",
        allowed=PHASES,
        words="{}",
        unsaid=PHASES[0],
    )
    optimizer: str = _option(
        "word",
        "Of a training step: sgd or adamw.  [default: sgd]",
        "NAME",
        allowed=OPTIMIZERS,
        data="training",
        words="{}",
    )
    accumulation: int = _option(
        "count",
        "Batches whose gradients add up before the optimizer steps.  [default: 1]",
        "N",
        flag="--grad-accum-steps",
        data="training",
        words="{} batches a step",
        unsaid=1,
    )
    cache: str | None = _option(
        "word",
        "Of --phase prefill or decode: static or dynamic.  [default: static]",
        "NAME",
        allowed=CACHES,
        words="{} cache",
        **_GENERATION,
    )
    context: int | None = _option(
        "count",
        "Of --phase decode: positions that are filled.",
        "N",
        words="context {}",
        **_GENERATION,
    )
    max_new_tokens: int | None = _option(
        "count",
        "Of --phase generate: new tokens of each sequence.  [default: 128]",
        "N",
        words="{} tokens",
        **_GENERATION,
    )
    cache_length: int | None = _option(
        "count",
        "Positions that a static cache has.  [default: as many as the pass needs]",
        "N",
        words="length {}",
        **_GENERATION,
    )
    experts: str | None = _option(
        "word",
        "How a mixture's experts are multiplied: batched_mm or grouped_mm.  [default: as "
        "generate of transformers: grouped_mm in a prefill, batched_mm in a step]",
        "NAME",
        allowed=EXPERTS,
        words="experts {}",
        **_GENERATION,
    )
    imbalance: float | None = _option(
        "number",
        "How unevenly a router chooses experts: the i-th busiest as i to the minus S.  "
        "[default: 0, all as often]",
        "S",
        words="imbalance {}",
        **_GENERATION,
    )
    quantize: str | None = _option(
        "word",
        "Of --phase prefill or decode: linear layers in fp8, the head left out.",
        "NAME",
        allowed=("fp8",),
        words="quantize {}",
        **_GENERATION,
    )
    allow_code: bool = _option(
        "switch",
        "Run the code of models that a file names by an import path.  [default: only what is "
        "named on the command line]",
        key=None,
    )
    inputs: Mapping[str, Json] | None = _option("mapping")
    named_in: str | None = field(default=None, compare=False, repr=False)
    built_by: Callable[[], object] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name:
            return
        named = not is_import_path(self.name)  # which may bring its own inputs
        sized = self.input_size or self.inputs is not None or self.phase in GENERATION_PHASES
        for name, meant, value in (
            ("dtype", named, published_dtype(self.name) or "float32"),
            ("memory_format", named, MEMORY_FORMATS[0]),
            ("batch_size", named or sized, 1),
            ("phase", True, PHASES[0]),
            ("optimizer", True, OPTIMIZERS[0]),
            ("accumulation", True, 1),
        ):
            if meant and getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, **options: Any) -> ModelSpec:
        """Return checked options: sizes may be text ("3x224x224"), dtypes short names ("bf16")."""
        for name in options:
            if name not in COMMAND_LINE:
                raise InputError(f"unknown option {name!r}; {nearest(name, COMMAND_LINE)}")
        given = {name: value for name, value in options.items() if value is not None}
        return cls(**{name: OPTIONS[name].parse(value) for name, value in given.items()})  # type: ignore[arg-type]

    def given(self) -> dict[str, Any]:
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        hidden = ("allow_code", "named_in", "built_by")
        return {n: value for n, value in found.items() if value is not None and n not in hidden}

    def changed(self, options: ModelSpec) -> ModelSpec:
        """Return the spec with what options say otherwise.

        A size given by hand takes the place of a file's inputs.
        """
        given = options.given()
        if "input_size" in given:
            given["inputs"] = None
        if options.allow_code:
            given["named_in"] = None
        return replace(self, **given)

    def at_sizes(self, batch_sizes: Sequence[int]) -> list[ModelSpec]:
        """Return the same at each batch size; as it stands where there is none."""
        return [replace(self, batch_size=size) for size in batch_sizes] or [self]

    def keywords(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in COMMAND_LINE}
        return {n: value for n, value in found.items() if value is not None and value is not False}

    def as_arguments(self) -> list[str]:
        found = []
        for name, value in self.keywords().items():
            flag, kind = COMMAND_LINE[name].flag, COMMAND_LINE[name].kind
            text = times(value) if kind == "size" else str(value)
            found += [flag] if kind == "switch" else [flag, text]
        return found

    @property
    def training(self) -> Json | None:
        if self.phase != "training":
            return None
        return {"optimizer": self.optimizer, "accumulation": self.accumulation}

    @property
    def new_tokens(self) -> int:
        """How many tokens of each sequence a prefill or a decoding step is given."""
        if self.phase == "decode":
            return 1
        return TOKENS if self.input_size is None else self.input_size[0]

    @property
    def filled(self) -> int:
        return (self.context or 0) if self.phase == "decode" else 0

    @property
    def generation(self) -> dict[str, Json] | None:
        """Which cache a prefill or a decoding step has, as data; None of other passes."""
        if self.phase not in GENERATION_PHASES:
            return None
        given = {name: getattr(self, name) for name in OF_GENERATION}
        given["cache"] = self.cache or CACHES[0]
        if self.phase == "decode":
            given["context"] = self.filled
        if self.phase == "generate":
            given["max_new_tokens"] = self.max_new_tokens or TOKENS
        elif given["cache"] == "static":
            given["cache_length"] = self.cache_length or self.filled + self.new_tokens
        return {name: value for name, value in given.items() if value is not None}

    def check(self) -> None:
        """Check that all of it is valid, as far as that is known without the model."""
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            # A model of one's own may have several dtypes.
            for one in value.split(MIXED) if name == "dtype" and value else [value]:
                if one is not None:
                    option.checked(one, name.replace("_", " "))
        self.check_dtype()
        if self.input_size is not None and self.inputs is not None:
            raise InputError(f"{self.name!r} has both an input size and inputs; give one of them")
        self._check_phase()

    def check_dtype(self) -> None:
        """Check that autocast and a quantization suit the dtype, as far as that is known."""
        for given, dtype, why in (
            (self.autocast, "float32", "autocast is for a model in float32"),
            (self.quantize, "bfloat16", "scaled products of fp8 give bfloat16"),
        ):
            if given is not None and self.dtype not in (None, dtype):
                raise InputError(f"{self.name!r} in {self.dtype}: {why}; add --dtype {dtype}")

    def _check_phase(self) -> None:
        """Check that the phase takes all that is given, and that a cache has room for the pass."""
        for name in (*_OF_PASS, *OF_GENERATION):
            if getattr(self, name) is not None and name not in _TAKEN[self.phase]:
                taking = [phase for phase in PHASES if name in _TAKEN[phase]]
                raise InputError(
                    f"{self.name!r}: phase {self.phase} takes no {name.replace('_', ' ')}: only "
                    f"{', '.join(taking)}"
                )
        size, length, needed = self.input_size, self.cache_length, self.filled + self.new_tokens
        for wrong, said in (
            (
                self.phase in GENERATION_PHASES and size is not None and len(size) != 1,
                f"input size {list(size or ())}; a prompt is one number",
            ),
            (self.phase == "decode" and not self.filled, "phase decode needs a context"),
            (length and self.cache == "dynamic", "a dynamic cache grows: it has no cache length"),
            (
                length is not None and length < needed,
                f"a cache of {length} positions is too short: the pass needs {needed}",
            ),
        ):
            if wrong:
                raise InputError(f"{self.name!r}: {said}")


OPTIONS: Mapping[str, Option] = {
    each.name: replace(
        option := each.metadata["option"],
        name=each.name,
        key=each.name if option.key == "" else option.key,
        flag=option.flag or "--" + each.name.replace("_", "-"),
    )
    for each in fields(ModelSpec)
    if each.metadata
}

COMMAND_LINE = {name: option for name, option in OPTIONS.items() if option.help}
"""Those that are options of the command line, and keywords in Python."""

OF_GENERATION = tuple(n for n, option in OPTIONS.items() if option.data == "generation")
_OF_PASS = ("autocast", "inputs", "input_size")
_GENERATED = ("cache", "experts", "imbalance", "quantize")
_TAKEN: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("inference", "training"), _OF_PASS),
    "prefill": (*_GENERATED, "input_size", "cache_length"),
    "decode": (*_GENERATED, "context", "cache_length"),
    "generate": (*_GENERATED, "input_size", "max_new_tokens"),
}
"""What each phase takes, of the options that not all of them do."""

OF_STEP = ("autocast", *(n for n, option in OPTIONS.items() if option.data == "training"))

_IDENTIFYING = ("source", *(name for name in COMMAND_LINE if name != "allow_code"))
IDENTITY = ("model", *_IDENTIFYING, "dtype_from")
"""The names under which every command's JSON and CSV tell workloads apart."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Ask whether the nearest valid name was meant; empty where none is near."""
    near = get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""


def parse_size(text: str) -> tuple[int, ...]:
    parts = re.split(r"[x,]", text)
    if not all(re.fullmatch(r"[1-9][0-9]{0,9}", part) for part in parts):
        raise InputError(
            f"--input-size {text!r}: give sizes of 1 or more, with 10 digits at most, as in "
            "3x224x224"
        )
    return tuple(int(part) for part in parts)


def parse_mode(name: str) -> Mode:
    if name not in get_args(Mode):
        hint = f"(modes: {', '.join(get_args(Mode))})"
        raise UnknownNameError("--mode", name, get_args(Mode), hint=hint)
    return cast(Mode, name)


def times(size: Sequence[int]) -> str:
    return "x".join(map(str, size))


def size_of(what: Workload | ModelSpec) -> tuple[int, ...] | None:
    """Return the shape of the first input without its batch; None where none is known.

    Images in a list have no batch: each has the size.
    """
    if isinstance(what, ModelSpec):
        return None if what.input_size is None else tuple(what.input_size)
    first = cast(Sequence[Json], what.inputs.get("args") or [None])[0]
    listed = isinstance(first, list)
    if listed:
        first = first[0] if first else None
    shape = first.get("shape") if isinstance(first, dict) else None
    return tuple(shape if listed else shape[1:]) if isinstance(shape, list) else None


def _values(what: Workload | ModelSpec) -> dict[str, Json]:
    """Return what tells workloads apart, by the names of `ModelSpec`."""
    size, entries = size_of(what), ("training", "generation")
    if isinstance(what, ModelSpec):
        data = {entry: getattr(what, entry) or {} for entry in entries}
    else:
        data = {entry: what.inputs.get(entry) or {} for entry in entries}
    found: dict[str, Json] = {}
    for name in _IDENTIFYING:
        entry = OPTIONS[name].data
        found[name] = data[entry].get(name) if entry else getattr(what, name, None)
    return {**found, "input_size": None if size is None else list(size)}


def identity(workload: Workload) -> dict[str, Json]:
    """Return what tells workloads apart, under `IDENTITY`'s names."""
    found = {"model": workload.name, "dtype_from": dtype_from(workload), **_values(workload)}
    return {name: found[name] for name in IDENTITY}


def describe(
    what: Workload | ModelSpec, *, usual_size: bool = False, dtype: str | None = None
) -> str:
    """Return what tells a model's workloads apart, in words; of an image's size what is unusual.

    What a spec leaves to a model of one's own is not mentioned. `dtype` says it in other words.
    """
    values = _values(what)
    values["dtype"] = dtype or values["dtype"]
    words = [
        OPTIONS[name].words.format(value)
        for name, value in values.items()
        if OPTIONS[name].words and value not in (None, OPTIONS[name].unsaid)
    ]
    size = None if what.phase == "decode" else size_of(what)
    if size is not None and len(size) == 1:
        words.append(f"size {size[0]}")
    elif size and (usual_size or size != USUAL_IMAGE):
        words.append(times(size))
    return " ".join(words)


def title(what: Workload) -> str:
    """Return what an answer begins with: the model, what tells its workloads apart, whose dtype."""
    return f"{what.name}, {describe(what, dtype=dtype_words(what))}"


def dtype_words(what: Any) -> str:
    """Return the dtype of a workload or loaded model, and in brackets what it is to its model."""
    found = dtype_from(what)
    return f"{what.dtype} ({found})" if found else str(what.dtype)


def dtype_from(what: Any) -> str | None:
    """Return in words what a dtype is to its model; None where no other is known of it.

    A checkpoint is published in a dtype, and `build()` of a model of one's own returns one.
    """
    if is_import_path(what.name):
        built = what.inputs.get("built", {}).get("dtype")
        return f"cast from {built}" if built else "as built"
    published = published_dtype(what.name)
    if published in (None, what.dtype):
        return published and "as published"
    return f"published in {published}"


def workload_columns(of: Callable[[Row], Workload]) -> tuple[Column[Row], ...]:
    """Return the columns that tell workloads apart; people read the model's name and words."""

    def column(name: str) -> Column[Row]:
        title = "model" if name == "model" else None
        return Column(name, lambda row: identity(of(row))[name], title=title)

    words: Column[Row] = Column(title="workload", text=lambda row: describe(of(row)))
    return (*map(column, IDENTITY), words)
