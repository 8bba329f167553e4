"""Compare counted FLOPs of torchvision's 80 classification models with torch's FlopCounterMode.

    python benchmarks/flops_vs_torch.py

For each model, on the meta device: the FLOPs of convolutions, matrix products and attention as
opdb counts them, and all that FlopCounterMode counts, for inference and for a training step's
forward and backward pass. They must be equal. Printed is what differs, and what opdb counts beyond
them: norms, pools, activations, additions. It takes some three minutes. `--models` names other
models, `--phase` one phase; `--json` prints one JSON document; exit status 1 where any differ.

Of a grouped convolution's backward pass FlopCounterMode counts the weight's gradient as if there
were one group; here that is put right.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from opdb.models import ModelRequest, load
from opdb.records import Phase
from opdb.studies.complexity import complexity

PRODUCTS = frozenset(
    (
        *(f"conv{rank}d" for rank in (1, 2, 3)),
        *("linear", "matmul", "bmm", "mm", "addmm", "baddbmm", "einsum"),
        *("scaled_dot_product_attention", "multi_head_attention"),
    )
)
"""The kinds that FlopCounterMode counts."""

PHASES: tuple[Phase, ...] = ("inference", "training")
SIZES = {"inception_v3": (3, 299, 299)}
"""Its second head, which training has, needs more than 224 pixels."""


@dataclass(frozen=True)
class Compared:
    """One model's products, as opdb and as torch count them, and what opdb counts beyond them."""

    model: str
    phase: Phase
    opdb: int
    torch: int
    beyond: int


def counter_of_groups() -> FlopCounterMode:
    """Return a FlopCounterMode that knows the groups of a convolution's backward pass."""
    return FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.convolution_backward: _backward_of_groups}
    )


def _backward_of_groups(
    outgoing: torch.Size,
    image: torch.Size,
    weight: torch.Size,
    _bias: object,
    _stride: object,
    _padding: object,
    _dilation: object,
    transposed: bool,
    _output_padding: object,
    _groups: int,
    wanted: list[bool],
    **_: object,
) -> int:
    """Count each gradient as one product of the forward pass's size."""
    one: int = conv_flop_count(list(image), list(weight), list(outgoing), transposed=transposed)
    return one * sum(wanted[:2])


def compare(name: str, phase: Phase, *, batch_size: int = 2) -> Compared:
    """Count a model's products both ways."""
    request = ModelRequest(
        name, "torchvision", batch_size=batch_size, input_size=SIZES.get(name), phase=phase
    )
    kinds = complexity(request).by_kind()
    products = sum(count.flops for kind, count in kinds.items() if kind in PRODUCTS)
    beyond = sum(count.flops for kind, count in kinds.items() if kind not in PRODUCTS)
    loaded = load(request, device="meta")
    with torch.set_grad_enabled(phase == "training"), counter_of_groups() as counter:
        outputs = loaded.module(*loaded.args, **loaded.kwargs)
        if phase == "training":
            heads = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
            torch.autograd.backward(heads, [torch.empty_like(head) for head in heads])
    return Compared(name, phase, products, counter.get_total_flops(), beyond)


def main() -> int:
    from benchmarks.harvest_vs_torchinfo import classification_models

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", metavar="NAME")
    parser.add_argument("--phase", choices=PHASES, action="append")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.models or classification_models()
    found = [compare(name, phase) for phase in options.phase or PHASES for name in names]
    differing = [each for each in found if each.opdb != each.torch]
    if options.json:
        print(json.dumps({"models": [asdict(each) for each in found], "differing": len(differing)}))
        return 1 if differing else 0
    for each in differing:
        print(f"{each.model} {each.phase}: {each.opdb} counted, {each.torch} by torch")
    print(f"{len(found) - len(differing)} of {len(found)} equal; beyond these products, of all:")
    for phase in options.phase or PHASES:
        shares = sorted(e.beyond / (e.beyond + e.opdb) for e in found if e.phase == phase)
        median, most = shares[len(shares) // 2], shares[-1]
        print(f"  {phase}: median {100 * median:.2f} %, at most {100 * most:.2f} %")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
