#!/usr/bin/env bash
# How right predictions of compiled models are, on a machine whose GPU does nothing else.
#
#   OPDB_DB=compiled.sqlite benchmarks/compiled_models.sh compiled.tgz cuda:0 900
#   OPDB_DB=compiled.sqlite benchmarks/compiled_models.sh compiled.tgz cuda:0 300 measurements/compiled/resnet50.yml lstm
#
# Models are summary files, or names; those of measurements/compiled/ unless said. One after the other
# is compiled as far as its fused groups, these are benched, one visit each, energies to ± 5 %, and the
# model is run, on a GPU also with its kernels in CUDA graphs, which no host holds up: what the seconds
# allow is whole. (Five models took 13 minutes on GPU-75cac6db…, 2026-11-23, in the default mode alone.) Then
# every prediction is held against its run. Called again, it goes on where it was. Packed are the
# database as a set and what validate says.
set -euo pipefail

[[ $# -ge 3 && $3 =~ ^[1-9][0-9]*$ ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
packed=$1 device=$2 seconds=$3
shift 3
[ $# -gt 0 ] || set -- "$(dirname "$0")"/../measurements/compiled/*.yml
: "${OPDB_DB:?names the database to measure into}"
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
opdb() { python3 -m opdb "$@"; }

modes=(compile)
[[ $device != cuda* ]] || modes+=(compile:reduce-overhead)

slug= # the database's name of the device, told with what was found
for model in "$@"; do
    rest=$((seconds - SECONDS - 60)) # without what a run takes, and what comes after the last
    [ "$rest" -ge 20 ] || { echo "the time is up before $model" >&2; break; }
    opdb harvest "$model" --mode compile --device "$device" --quiet --json >"$folder/found.json" \
        || continue
    slug=$(python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["compiled_for"])' \
        <"$folder/found.json")
    opdb bench fused enter_graph --this-board --duplicates 0 --rounds 1 --precision 0.05 \
        --device "$device" --max-seconds "$rest" --quiet || true
    opdb modes "$model" --modes "$(IFS=,; echo "${modes[*]}")" --device "$device" --quiet || true
done
rm -f "$folder/found.json"

{
    for mode in "${modes[@]}"; do opdb validate --mode "$mode" ${slug:+--device "$slug"} || true; done
    opdb validate --kernels ${slug:+--device "$slug"} || true
} 2>&1 | tee "$folder/validate.txt"
opdb export "$folder/set" ${slug:+--device "$slug"} --quiet >/dev/null
tar -czf "$packed.part" -C "$folder" .
mv "$packed.part" "$packed"
