"""Models that come with opdb: small ones of the classes that torchvision lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

import opdb
from opdb.errors import InputError
from opdb.models import TOKENS, ModelRequest
from opdb.models.source import Blueprint, sized_input
from opdb.models.usual import FEATURES
from opdb.records import Json

VOCABULARY = 10_000


class LSTMLanguageModel(nn.Module):
    """An embedding, a two-layer LSTM and a projection to the vocabulary: (batch, length) tokens."""

    def __init__(self, outputs: int = VOCABULARY, width: int = 512) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits of shape (batch, length, outputs)."""
        states, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.head(states)
        return logits


class TransformerClassifier(nn.Module):
    """An embedding, a four-layer transformer encoder and a classifier: (batch, length) tokens."""

    def __init__(self, outputs: int = 2, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=4)
        self.head = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits of shape (batch, outputs)."""
        states = self.encoder(self.embedding(tokens))
        logits: Tensor = self.head(states.mean(dim=1))
        return logits


def mlp(outputs: int = 10, features: int = FEATURES, width: int = 1024) -> nn.Module:
    """Return a perceptron with two hidden layers: (batch, features) to (batch, outputs)."""
    return nn.Sequential(
        nn.Linear(features, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, outputs),
    )


_MODELS: dict[str, Callable[..., nn.Module]] = {
    "lstm": LSTMLanguageModel,
    "mlp": mlp,
    "transformer": TransformerClassifier,
}


class BuiltinSource:
    """The models of this file."""

    name = "builtin"
    fixed = True
    runs_code = False

    def names(self) -> Sequence[str]:
        """Return their names."""
        return list(_MODELS)

    def has(self, name: str) -> bool:
        """Return whether the name is one of them."""
        return name in _MODELS

    def hint(self) -> str:
        """Return nothing: every name is listed."""
        return ""

    def version(self, name: str) -> str:
        """Return opdb's version."""
        return opdb.__version__

    def build(self, request: ModelRequest) -> Blueprint:
        """Build the model; an input size is the number of features, or of tokens.

        Raises:
            InputError: weights are asked for, or the input size has not one entry.
        """
        if request.weights is not None:
            raise InputError(f"{request.name!r} has no weights {request.weights!r}; leave them out")
        if request.input_size is not None and len(request.input_size) != 1:
            size = list(request.input_size)
            raise InputError(f"input size {size} of {request.name!r}; it takes one number")
        options = {} if request.num_classes is None else {"outputs": request.num_classes}
        if request.name == "mlp":
            features = request.input_size[0] if request.input_size else FEATURES
            module = mlp(features=features, **options)
            return Blueprint(module, inputs=sized_input((features,), request.dtype))
        length = request.input_size[0] if request.input_size else TOKENS
        tokens: dict[str, Json] = {
            "shape": ["batch", length],
            "dtype": "int64",
            "values": {"range": [0, VOCABULARY]},
        }
        return Blueprint(_MODELS[request.name](**options), inputs={"args": [tokens]})


SOURCE = BuiltinSource()
