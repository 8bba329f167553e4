"""What torch's own RuntimeEstimator says of the published runs, by its cost model.

Run it on a GPU of the published device, in a checkout with opdb installed:

    python benchmarks/runtime_estimator.py --db opdb.sqlite

torch.distributed._tools.runtime_estimator.RuntimeEstimator knows the device's data sheet and its
operators' FLOPs and bytes; it measures nothing in this mode, and knows no energy. Each published
run of a CUDA graph is held against it: its error is that of a whole model, as in the table that
`opdb validate --estimates model` prints. Runs that it says nothing of are named with its reason and
counted apart. The models named by `--model` alone, or all.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.runtime_estimator import RuntimeEstimator

from opdb.models import ModelRequest, load
from opdb.predict import predictor_for
from opdb.records import Workload
from opdb.store import open_store

MODE = "operator-level-cost-model"


def estimated_s(workload: Workload, device: str = "cuda") -> float:
    """Return the time of one pass (seconds) by torch's cost model of this machine's GPU."""
    request = ModelRequest(
        workload.name,
        source=workload.source,
        batch_size=workload.batch_size,
        dtype=workload.dtype,
        memory_format=workload.memory_format,
        inputs=workload.inputs,
    )
    loaded = load(request, device=device)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, torch.no_grad():
        estimator = RuntimeEstimator()
        args, kwargs = torch.utils._pytree.tree_map_only(
            torch.Tensor, fake.from_tensor, (loaded.args, loaded.kwargs)
        )
        with estimator(estimate_mode_type=MODE):
            loaded.module(*args, **kwargs)
    return float(estimator.total_runtime) / 1e3


def rows(database: str | None, device: str | None, models: list[str]) -> list[dict[str, Any]]:
    """Return each published run of a CUDA graph beside what torch says of it."""
    found = []
    with open_store(database, create=False) as store:
        predictor = predictor_for(store, device, estimates=False)
        for workload, _ in predictor.measured_workloads("graph"):
            if models and workload.name not in models:
                continue
            measured = predictor.answer(workload, "graph").measured
            assert measured is not None
            time_s, reason = None, None
            try:
                time_s = estimated_s(workload)
            except Exception as error:  # noqa: BLE001  (whatever it raises: it is what is looked at)
                reason = (
                    f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                )
            found.append(
                {
                    "model": workload.name,
                    "batch_size": workload.batch_size,
                    "dtype": workload.dtype,
                    "time_s": time_s,
                    "measured_time_s": measured.time_s.mean,
                    "ratio": None if time_s is None else time_s / measured.time_s.mean,
                    "reason": reason,
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--db")
    parser.add_argument("--device")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch's cost model asks the GPU what it is; this machine has none")
    found = rows(asked.db, asked.device, asked.model)
    if asked.json:
        print(json.dumps(found))
        return
    for row in found:
        run = f"{row['model']:22} {row['batch_size']:4} {row['dtype']:9}"
        if row["ratio"] is None:
            print(f"{run} {row['reason']}")
            continue
        print(
            f"{run} {1e3 * row['time_s']:8.3f} ms / {1e3 * row['measured_time_s']:8.3f} ms "
            f"= {row['ratio']:.3f}"
        )
    errors = [abs(row["ratio"] - 1) for row in found if row["ratio"] is not None]
    median = f", median error {100 * statistics.median(errors):.1f} %" if errors else ""
    print(f"{len(errors)} of {len(found)} runs{median}")


if __name__ == "__main__":
    main()
