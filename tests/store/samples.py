"""Records to save: small, and with every kind of gap that real ones have."""

from __future__ import annotations

from opdb.estimates.estimator import FORMAT
from opdb.records import (
    AfterOthers,
    Board,
    BoardCalibration,
    Calibration,
    Call,
    Campaign,
    Configuration,
    Cost,
    Device,
    Host,
    HostVisit,
    Json,
    KernelCounts,
    MeterTest,
    ModelRun,
    Neighbours,
    OperatingPoint,
    Profile,
    Quantity,
    RunRatio,
    RunRatios,
    Stretch,
    Visit,
    Workload,
)

IMAGE = {"shape": [2, 3, 32, 32], "dtype": "float32"}
CONV = Configuration(
    kind="conv2d",
    parameters={"stride": [2, 2], "padding": [3, 3]},
    inputs={
        "input": IMAGE,
        "weight": {"shape": [8, 3, 7, 7], "dtype": "float32", "role": "weight"},
    },
)
RELU = Configuration(
    kind="relu",
    parameters={"inplace": True},
    inputs={"input": {"shape": [2, 8, 16, 16], "dtype": "float32"}},
)
ADD = Configuration(
    kind="add",
    inputs={"input": {"shape": [2, 8, 16, 16], "dtype": "float32"}, "other": {"same": 0}},
)
ANCHOR = Configuration(kind="linear", inputs={"input": {"shape": [8, 8], "dtype": "bfloat16"}})

DEVICE = Device("nvidia-h200", "NVIDIA H200", "cuda", 700.0, 150_000_000_000, 62_914_560, 1.98e9)
PROCESSOR = Device("a-cpu", "Some CPU", "cpu", None, None, None, None)
HOST = Host("host-1", "Some CPU", 16, "Linux 6.8")


def workload(name: str = "tiny", batch_size: int = 2, dtype: str = "float32") -> Workload:
    shape = [batch_size, 3, 32, 32]
    calls = (CONV, RELU, ADD, RELU, RELU)
    return Workload(
        name=name,
        source="torchvision",
        source_version="0.28.0",
        inputs={"args": [{"shape": shape, "dtype": dtype}], "kwargs": {}},
        batch_size=batch_size,
        dtype=dtype,
        memory_format="contiguous",
        calls=tuple(Call(c, "module" if c is not ADD else "function") for c in calls),
        containers=3,
        foreign_leaves={"package.Leaf": 2},
        unsupported={"torch.odd": 1},
    )


def campaign(
    identity: str = "campaign-1", board: str = "GPU-1", device: Device = DEVICE
) -> Campaign:
    return Campaign(
        id=identity,
        board=Board(board, device.slug),
        device=device,
        host=HOST,
        started_at="2026-11-20T10:00:00Z",
        environment={"torch": "2.15.0", "cudnn": None},
        settings={"allow_tf32": False, "benchmark": True},
        calibration=Calibration(
            base_power_w=121.5,
            base_power_interval_w=(121.25, 121.75),
            container_time_s=None,
            sample_period_s=0.02,
            sample_lag_s=0.01,
            counter_period_s=0.1,
            notes=("container time: not measured",),
        ),
    )


def board_calibration(identity: str = "calibration-1") -> BoardCalibration:
    return BoardCalibration(
        id=identity,
        board=Board("GPU-1", DEVICE.slug),
        driver="580.1",
        power_limit_w=700.0,
        measured_at="2026-11-20T09:58:00Z",
        environment={"torch": "2.15.0"},
        cost_s=110.5,
        facts={"sample_period_s": 0.0204, "copy_bytes_per_s": None},
        tests=(MeterTest("square wave", True, 0.004, 0.02, "samples follow a part-time load"),),
        notes=("no copy rate: no memory left",),
    )


def profile(identity: str = "profile-1") -> Profile:
    """What counters saw, as far as they did: nothing of one metric of one kernel."""
    return Profile(
        id=identity,
        board=Board("GPU-1", DEVICE.slug),
        configuration=CONV.key,
        setting="{}",
        measured_at="2026-11-20T13:00:00Z",
        environment={"ncu": "2024.1.1.0", "torch": None},
        definition={"memory_bytes": {"dram__bytes.sum": 1.0}},
        kernels=(
            KernelCounts("first(int)", {"dram__bytes.sum": 4096.0}),
            KernelCounts("second", {"dram__bytes.sum": None}),
        ),
    )


LEARNED: Json = {
    "format": FORMAT,
    "device": DEVICE.slug,
    "board": "GPU-1",
    "trained_at": "2026-11-20T12:00:00+00:00",
    "configurations": 0,
    "roofline": {
        "flops_per_s": {},
        "bytes_per_s": 3.5e12,
        "shortest_s": 1e-6,
        "broadcast_per_s": 3.5e11,
    },
    "families": {},
    "usual": {},
    "sums": {"time": 2.0, "energy": None},
}
"""What was learned from too little: it estimates nothing."""

RATIOS: RunRatios = {
    "eager": {"GPU-1": {"a" * 64: RunRatio(1.25, None, None, waits=True), "b" * 64: None}},
    "graph": {"GPU-1": {"a" * 64: RunRatio(1.02, 0.98, 4e-6, waits=False)}},
}
"""What two workloads showed of sums; one of them nothing."""

STRETCH = Stretch(
    calls_per_replay=20,
    replay_times_s=(0.001234567, 0.001234569, 0.00125),
    duration_s=0.301,
    busy_share=0.998,
    power_samples=((0.02, 512.25), (0.04, 513.0), (0.0602, 512.875)),
    counter_edges=((0.0, 0.0), (0.1, 51.25), (0.2001, 102.5)),
    clock_samples_hz=(1.98e9, 1.965e9),
    temperature_c=41.5,
    utilization=0.97,
)
NEIGHBOURS = Neighbours(
    40,
    (0.0012, 0.0013),
    (0.0004, 0.00041),
    {
        "itself": Neighbours(24, (0.0007, 0.0008), (0.0002, 0.0003)),
        "code": Neighbours(24, (0.0017, 0.0018), (0.0012, 0.0013)),
    },
)
BARE_STRETCH = Stretch(1, (0.00001,), 0.5, 1.0)


def visit(
    identity: str = "visit-1", configuration: Configuration = CONV, **changes: object
) -> Visit:
    values: dict[str, object] = {
        "id": identity,
        "campaign": "campaign-1",
        "configuration": configuration.key,
        "setting": "default",
        "role": "measurement",
        "outcome": "ok",
        "reason": None,
        "started_at": "2026-11-20T10:01:00Z",
        "cost_s": 0.41,
        "issue": "graph",
        "weights": "cold",
        "copies": 7,
        "stretch": STRETCH,
        "restore": BARE_STRETCH,
        "kernels": {"implicit_convolve_sgemm": 1},
        "flags": ("clock moved",),
    }
    return Visit(**{**values, **changes})  # type: ignore[arg-type]


def anchor_visit() -> Visit:
    return visit("visit-3", ANCHOR, role="anchor", neighbours=NEIGHBOURS, outputs="fresh")


def failed_visit(identity: str = "visit-2", configuration: Configuration = RELU) -> Visit:
    return visit(
        identity,
        configuration,
        outcome="out_of_memory",
        reason='asked for 200 GiB, "139" GiB there',
        stretch=None,
        restore=None,
        kernels=None,
        flags=(),
        outputs="reused",
    )


def host_visit(identity: str = "host-visit-1") -> HostVisit:
    return HostVisit(
        id=identity,
        campaign="campaign-1",
        configuration=CONV.key,
        form="module",
        started_at="2026-11-20T10:02:00Z",
        times_s=(1.25e-5, 1.3e-5, 2.0001e-5),
    )


def model_run(of: Workload, identity: str = "run-1") -> ModelRun:
    return ModelRun(
        id=identity,
        campaign="campaign-1",
        workload=of.key,
        mode="eager",
        outcome="ok",
        reason=None,
        started_at="2026-11-20T10:03:00Z",
        cost_s=4.5,
        repeats=(STRETCH, BARE_STRETCH),
        peak_memory_bytes=3_000_000_000,
        kernels={"a": 3, "b": 1},
        layers={"layer1.0.conv1": 1.23457e-4, "layer1.0.bn1": 5.6e-5},
        flags=("throttled",),
        facts={"compile_time_s": 2.5, "label": 'first, of "two"'},
    )


def cost(configuration: Configuration = CONV, board: str = "GPU-1", visits: int = 2) -> Cost:
    quantity = Quantity(1.25e-5, 1.2512345e-5, 1.24e-5, 1.26e-5, 40)
    return Cost(
        configuration=configuration.key,
        board=board,
        setting="default",
        estimator="1",
        visits=visits,
        kernels=1,
        time_s=quantity,
        power_w=Quantity(512.3, 512.1, 511.9, 512.6, 15),
        energy_j=None,
        dynamic_energy_j=None,
        eager_time_s=None,
        host_time_s={"module": quantity},
        clock_hz=1.98e9,
        hot=OperatingPoint(None, 1.1e-5, None),
        after_others=AfterOthers(5e-8, None),
        reasons={"energy_j": "no power meter"},
        flags=("agreement",),
    )
