"""Questions about models and sizes that no published set holds; all of them, run by themselves.

    python -m tests.cli.never_harvested [DATABASE]

asks each with one command, on the default database of the checkout or another, and prints what
came of it: the seconds it took, the exit status, the first line.
"""

from __future__ import annotations

import subprocess
import sys
import time

DEVICE = ("--device", "nvidia-h200")

QUESTIONS: tuple[str, ...] = (
    "resnet50 -b 7",
    "resnet34 -b 96",
    "resnet101 -b 7 --dtype float16 --memory-format channels_last",
    "wide_resnet50_2 -b 12 --dtype bfloat16",
    "resnext50_32x4d -b 33 --mode graph",
    "densenet169 -b 5",
    "efficientnet_b3 -b 96 --dtype bfloat16 --memory-format channels_last --input-size 3x300x300",
    "efficientnet_v2_s -b 7 --input-size 3x384x384",
    "mobilenet_v2 -b 96 --dtype float16",
    "shufflenet_v2_x1_0 -b 256",
    "squeezenet1_1 -b 3 --mode graph",
    "mnasnet1_0 -b 7",
    "regnet_y_8gf -b 24",
    "convnext_base -b 96 --dtype float16 --memory-format channels_last",
    "inception_v3 -b 7 --input-size 3x299x299",
    "vit_b_16 -b 96",
    "vit_l_32 -b 10 --dtype bfloat16",
    "swin_v2_t -b 7 --dtype float16",
    "maxvit_t -b 7",
    "vgg19_bn -b 96 --mode graph",
    "deeplabv3_resnet50 -b 3",
    "fcn_resnet101 --input-size 3x256x256 -b 7",
    "lraspp_mobilenet_v3_large -b 7 --dtype float16",
    "fasterrcnn_resnet50_fpn -b 2",
    "retinanet_resnet50_fpn -b 2",
    "ssd300_vgg16 -b 7",
    "maskrcnn_resnet50_fpn --input-size 3x512x512",
    "r3d_18 -b 3",
    "swin3d_t -b 2 --dtype bfloat16",
    "raft_small --input-size 3x256x320",
    "bert-base-uncased -b 7 --input-size 37",
    "roberta-base -b 96 --dtype bfloat16",
    "distilbert -b 12 --input-size 384 --mode graph",
    "electra -b 7",
    "t5-small -b 7 --input-size 64",
    "bart -b 3 --dtype float16",
    "gpt2-medium-bare -b 7 --dtype bfloat16",
    "llama --dtype bfloat16 --input-size 16",
    "vit-base-patch16-224 -b 96 --dtype float16",
    "resnet50 -b 96 --phase training --autocast bfloat16",
    "clip -b 7",
)


def arguments(question: str) -> list[str]:
    """Return the arguments of the command that asks it."""
    return ["predict", *question.split(), *DEVICE]


def main(database: list[str]) -> None:
    """Ask all of them, one process each, and print a line for each."""
    for question in QUESTIONS:
        started_s = time.monotonic()
        named = ["--db", *database] if database else []
        ran = subprocess.run(
            [sys.executable, "-m", "opdb", *arguments(question), *named],
            capture_output=True,
            text=True,
            check=False,
        )
        spent_s = time.monotonic() - started_s
        first = (ran.stderr + ran.stdout).splitlines()[:1]
        rows = [line for line in ran.stdout.splitlines() if line.startswith(("time ", "coverage"))]
        print(f"{spent_s:5.1f} s  {ran.returncode}  {question}", *first, *rows, sep="\n    ")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
