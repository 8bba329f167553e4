"""Judge the driver, and what torch makes of it. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from opdb.doctor.facts import BoardFacts, Facts
from opdb.doctor.finding import Finding, blocks, fine, note, unknown
from opdb.units import plural


def gpu(facts: Facts) -> Finding:
    """Judge whether there is a GPU that the driver offers."""
    boards, on_bus = facts.nvidia.boards, facts.nvidia.on_bus
    if boards:
        counts = Counter(board.state.name or "not reachable" for board in boards)
        said = (f"{count} × {name}" if count > 1 else name for name, count in counts.items())
        return fine("GPU", ", ".join(said))
    if on_bus:
        return blocks(
            "GPU",
            f"{plural(on_bus, 'NVIDIA GPU')} on the PCI bus, none offered by a driver",
            "Install the NVIDIA driver, or load it (sudo modprobe nvidia); in a container, start "
            "it with --gpus all.",
        )
    return blocks(
        "GPU",
        "none",
        "Harvest and predict here and run opdb bench on a machine with an NVIDIA GPU, or measure "
        "this processor with opdb bench --device cpu.",
    )


def driver(facts: Facts) -> Finding:
    """Judge the driver by whether NVML answers."""
    nvidia = facts.nvidia
    if nvidia.driver is not None and nvidia.error is None:
        return fine("driver", nvidia.driver)
    said = f"NVML: {nvidia.error}"
    if "version mismatch" in str(nvidia.error):
        return blocks(
            "driver",
            said,
            "The driver was updated while the old one is loaded: reboot, or unload and load the "
            "nvidia modules.",
        )
    if "ermission" in str(nvidia.error):
        return blocks(
            "driver", said, "Give this user access to /dev/nvidia*, as its group or by udev."
        )
    if nvidia.on_bus or nvidia.driver:
        return blocks(
            "driver",
            said,
            "Install the NVIDIA driver with libnvidia-ml.so.1 and see whether nvidia-smi answers.",
        )
    return unknown("driver", said, "Without a GPU none is needed.")


def cuda(facts: Facts) -> Finding:
    """Judge whether the driver serves the CUDA that torch was built for."""
    serves, built = facts.nvidia.cuda, facts.torch.cuda
    if serves is None or built is None:
        known = f"driver {serves or 'none'}, torch {built or 'none'}"
        return unknown("CUDA", known, "It is told once there are a driver and a CUDA build.")
    said = f"driver up to {serves}, torch built for {built}"
    if _major(serves) >= _major(built):
        return fine("CUDA", said)
    return blocks(
        "CUDA",
        said,
        f"Update the driver to one that serves CUDA {built}, or install a torch built for CUDA "
        f"{_major(serves)} (https://pytorch.org/get-started/locally).",
    )


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def torch(facts: Facts) -> Finding:
    """Judge whether torch can use every GPU that is there."""
    found, boards = facts.torch, facts.nvidia.boards
    said = f"{found.version}, " + (f"CUDA {found.cuda}" if found.cuda else "CPU-only build")
    if found.error is not None:
        return blocks(
            "torch",
            found.error,
            "Install it anew: pip install --force-reinstall torch torchvision.",
        )
    if found.cuda is None:
        advice = (
            " a CUDA build: pip install --force-reinstall torch torchvision "
            "--index-url https://download.pytorch.org/whl/cu126, or as your driver asks."
        )
        if boards:
            return blocks("torch", f"{said} beside a GPU", f"Install{advice}")
        return note("torch", said, f"Enough without a GPU. To measure one: install{advice}")
    if boards and not found.gpus:
        return _sees_none(facts, said)
    missing = [b.state.name for b in boards if not _has_kernels(b, found.architectures)]
    if missing:
        return blocks(
            "torch",
            f"{said}, without kernels for {missing[0]} ({', '.join(found.architectures)})",
            "Install a torch build for this GPU's architecture "
            "(https://pytorch.org/get-started/locally).",
        )
    if found.gpus < len(boards):
        return note(
            "torch",
            f"{said}, sees {found.gpus} of {len(boards)} GPUs"
            + (f" (CUDA_VISIBLE_DEVICES={found.visible})" if found.visible is not None else ""),
            "Only those can be measured; unset CUDA_VISIBLE_DEVICES to see them all.",
        )
    return fine("torch", said)


def _sees_none(facts: Facts, said: str) -> Finding:
    found = facts.torch
    if found.visible is not None:
        return blocks(
            "torch",
            f"{said}, sees no GPU (CUDA_VISIBLE_DEVICES={found.visible!r})",
            "Unset CUDA_VISIBLE_DEVICES, or name a GPU that is there.",
        )
    return blocks(
        "torch",
        f"{said}, sees no GPU" + (f" ({found.why_none})" if found.why_none else ""),
        "Hold nvidia-smi and python -c 'import torch; torch.cuda.init()' against each other; a "
        "driver too old for this build or a GPU in a bad state (reboot) is the usual cause.",
    )


def _has_kernels(board: BoardFacts, architectures: Sequence[str]) -> bool:
    """Return whether code for a board is in a build: of its major version, or to be compiled."""
    capability = board.state.capability
    if capability is None or not architectures:
        return True
    for each in architectures:
        found = re.match(r"(sm|compute)_(\d+)(\d)", each)
        if found is None:
            continue
        listed = (int(found[2]), int(found[3]))
        if listed <= capability and (found[1] == "compute" or listed[0] == capability[0]):
            return True
    return False


def cudnn(facts: Facts) -> Finding:
    """Judge whether torch has cuDNN, without which convolutions run other kernels."""
    version = facts.torch.cudnn
    if version is not None:
        # 91900 is 9.19.0; before 9 it was 8907 for 8.9.7.
        scale = 10_000 if version >= 10_000 else 1_000
        return fine("cuDNN", f"{version // scale}.{version % scale // 100}.{version % 100}")
    if facts.torch.cuda is None:
        return unknown("cuDNN", "none in a build without CUDA", "It comes with a CUDA build.")
    return blocks(
        "cuDNN",
        "torch finds none",
        "Install torch anew with its own libraries: pip install --force-reinstall torch.",
    )
