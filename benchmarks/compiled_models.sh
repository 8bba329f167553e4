#!/usr/bin/env bash
# How right predictions of compiled models are, on a machine whose GPU does nothing else.
#
#   OPDB_DB=compiled.sqlite benchmarks/compiled_models.sh compiled.tgz cuda:0 400
#   OPDB_DB=compiled.sqlite benchmarks/compiled_models.sh compiled.tgz cuda:0 400 "resnet18:1:float32 resnet50:32:bfloat16"
#
# Each workload (model:batch:dtype) is compiled as far as its fused groups and run compiled, first; then
# the groups are benched until the time is nearly up, and every prediction is held against its run.
# Called again, it goes on where it was. Packed are the database as a set and what validate says.
set -euo pipefail

[ $# -ge 3 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
packed=$1 device=$2 seconds=$3
workloads=${4:-"resnet18:1:float32 resnet18:32:float32 resnet50:32:bfloat16 mobilenet_v3_large:1:float32
  mobilenet_v3_large:32:bfloat16 vit_b_16:1:float32 vit_b_16:32:bfloat16 bert-base-uncased:1:float32
  bert-base-uncased:32:bfloat16 convnext_tiny:32:bfloat16 efficientnet_b0:32:float32"}
: "${OPDB_DB:?names the database to measure into}"
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

left() { echo $((seconds - SECONDS)); }

for workload in $workloads; do
    IFS=: read -r model batch dtype <<<"$workload"
    said=(--batch-size "$batch" --dtype "$dtype")
    known=$(python3 -m opdb predict "$model" "${said[@]}" --mode compile --json 2>/dev/null |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["measured"] is not None)' || true)
    if [ "$known" != True ] && [ "$(left)" -gt 60 ]; then
        python3 -m opdb harvest "$model" "${said[@]}" --mode compile --device "$device" --quiet || true
        python3 -m opdb measure "$model" "${said[@]}" --mode compile --device "$device" --quiet || true
    fi
done
rest=$(($(left) - 20))
[ "$rest" -lt 30 ] || python3 -m opdb bench fused --this-board --device "$device" --max-seconds "$rest" --quiet || true
{
    python3 -m opdb validate || true
    python3 -m opdb validate --kernels || true
} | tee "$folder/validate.txt"
python3 -m opdb export "$folder/set" --quiet >/dev/null
tar -czf "$packed.part" -C "$folder" .
mv "$packed.part" "$packed"
