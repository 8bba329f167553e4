"""What needs a GPU is collected only where there is one: a skipped test would look covered."""

from __future__ import annotations

import torch

collect_ignore = [] if torch.cuda.is_available() else ["gpu"]
