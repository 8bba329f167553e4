"""A stand-in for Nsight Compute where there is no GPU: it answers as ncu's manual says ncu does.

What it prints was written by hand after that format (`--csv --page raw`: the profiler's own lines,
a header, a row of units, a row a kernel, numbers with commas); its numbers are made up and measure
nothing. It takes no option that ncu does not have, and runs the program that it is given.
"""

from __future__ import annotations

import sys
from pathlib import Path

KNOWN = (
    *("gpu__time_duration", "dram__bytes", "dram__bytes_read", "dram__bytes_write"),
    *("lts__t_bytes", "l1tex__t_bytes", "sm__ops_path_tensor_src_tf32_dst_fp32"),
    *("sm__ops_path_tensor_src_bf16_dst_fp32", "sm__ops_path_tensor_src_fp16"),
    *(f"sm__sass_thread_inst_executed_op_f{name}_pred_on" for name in ("add", "mul", "fma")),
)
VERSION = "2024.1.1.0"
REFUSAL = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
    "Performance Counters on the target device 0."
)

_PROGRAM = '''#!{python}
"""See tests/counters/stand_in.py: what this prints is made up."""
import csv, json, subprocess, sys
from pathlib import Path

KNOWN = {known!r}
FAULT = {fault!r}
WITH_VALUE = ("--clock-control", "--cache-control", "--profile-from-start", "--metrics",
              "--export", "--import", "--page")
ALONE = ("--nvtx", "--force-overwrite", "--csv", "--query-metrics", "--version")
NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
UNITS = {{"time": "nsecond", "bytes": "byte", "inst": "inst"}}  # by what is in a metric's name

said, rest = {{}}, sys.argv[1:]
while rest and rest[0].startswith("-"):
    option = rest.pop(0)
    if option in WITH_VALUE:
        said[option] = rest.pop(0)
    elif option in ALONE:
        said[option] = True
    else:
        sys.exit(f"==ERROR== unrecognised option '{{option}}'. Use --help for further details.")

if "--version" in said:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion {version} (build 1)")
elif "--query-metrics" in said:
    print('"Metric name","Metric type","Metric unit","Metric description","gh100"')
    for name in KNOWN:
        print(f'"{{name}}","Counter","","made up","1"')
elif "--import" in said:
    sys.stdout.write(Path(said["--import"]).read_text())
else:
    print(f"==PROF== Connected to process 7 ({{rest[0]}})", flush=True)
    if FAULT == "no permission":
        print({refusal!r})
        sys.exit(1)
    done = subprocess.run(rest)
    if FAULT == "no kernel" or done.returncode:
        print(f"==ERROR== The application returned an error code ({{done.returncode}}).")
        print("==WARNING== No kernels were profiled.")
        sys.exit(1)
    job = json.loads(Path(rest[-1]).read_text())
    made = json.loads(Path(job["result"]).read_text())
    if None not in made.values():
        sys.exit("==WARNING== No kernels were profiled.")
    metrics = said["--metrics"].split(",")
    with open(said["--export"].replace("%%", "%"), "w", newline="") as stream:
        rows = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\\n")
        rows.writerow(["ID", "Process ID", "Process Name", "Host Name", NVTX, "Kernel Name",
                       "Context", "Stream", "Block Size", "Grid Size", "Device", "CC", *metrics])
        rows.writerow([""] * 12 + [
            next((UNITS[part] for part in UNITS if f"_{{part}}" in name), "") for name in metrics
        ])
        number = 0
        for key in made:
            if made[key] is not None:
                continue
            ranges = "".join(
                f'"<default domain>:{{name}}:none:none:none:none:none:none" '
                for name in (job["board"], f"opdb call {{key}}")
            )
            for kernel in ("first(float *, int)", "void second<float>(float *)"):
                # times have decimals, which tell what the commas are
                values = [f"{{1000 * (number + 1):,.{{2 * ('time' in n)}}f}}" for n in metrics]
                rows.writerow([number, 7, "python", "127.0.0.1", "140 " + ranges, kernel, 1, 7,
                               "(128, 1, 1)", "(4, 1, 1)", 0, "9.0", *values])
                number += 1
'''


def install(folder: Path, *, fault: str = "", known: tuple[str, ...] = KNOWN) -> Path:
    """Put the stand-in into a folder as `ncu`; `fault` says what goes wrong."""
    folder.mkdir(exist_ok=True)
    path = folder / "ncu"
    path.write_text(
        _PROGRAM.format(
            python=sys.executable,
            known=known,
            fault=fault,
            version=VERSION,
            refusal=REFUSAL,
        )
    )
    path.chmod(0o755)
    return path
