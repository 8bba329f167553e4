"""Linear layers in float8: weights once, activations in each call, a scale for each row.

The head stays as it is, and so do experts, embeddings and norms. What a layer calls is what eager
row-wise dynamic quantization takes: the largest magnitude of each row, its scale, the division, the
cast, and one scaled product.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from opdb.errors import InputError

FLOAT8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FLOAT8).max
MULTIPLE = 16
"""What the sizes of a scaled product's factors are multiples of."""


def _in_float8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows in float8, and the scale of each, of shape [rows, 1]."""
    scale = rows.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (rows / scale).clamp(-LARGEST, LARGEST).to(FLOAT8), scale


class Float8Linear(nn.Module):
    """A linear layer whose weight is float8, and whose input is brought to it in each call."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        rows, scale = _in_float8(linear.weight.detach())
        self.weight = nn.Buffer(rows.t())  # a scaled product takes columns
        self.scale = nn.Buffer(scale.t().contiguous())
        self.bias = linear.bias

    def forward(self, input: Tensor) -> Tensor:
        """Return the product, in the input's dtype, for an input of shape [..., features]."""
        rows, scale = _in_float8(input.reshape(-1, input.shape[-1]))
        output = torch._scaled_mm(
            rows,
            self.weight,
            scale_a=scale,
            scale_b=self.scale,
            bias=self.bias,
            out_dtype=input.dtype,
        )
        return output.reshape(*input.shape[:-1], output.shape[-1])


def quantize(name: str, decoder: nn.Module) -> None:
    """Put a decoder's linear layers into float8, all but its head.

    Raises:
        InputError: it has none, or one whose sizes a scaled product does not take.
    """
    head = getattr(decoder, "get_output_embeddings", lambda: None)()
    found = [
        (parent, child, f"{path}.{child}".lstrip("."), layer)
        for path, parent in decoder.named_modules()
        for child, layer in parent.named_children()
        if isinstance(layer, nn.Linear) and layer is not head
    ]
    if not found:
        raise InputError(f"{name!r} has no linear layers besides its head: nothing for fp8")
    for _, _, path, layer in found:
        if layer.in_features % MULTIPLE or layer.out_features % MULTIPLE:
            raise InputError(
                f"{name!r}: fp8 takes sizes that are multiples of {MULTIPLE}, and {path!r} has "
                f"{layer.in_features} and {layer.out_features} features"
            )
    with torch.no_grad():
        for parent, child, _, layer in found:
            setattr(parent, child, Float8Linear(layer))
