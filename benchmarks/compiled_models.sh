#!/usr/bin/env bash
# How right predictions of compiled models are, on a machine whose GPU does nothing else.
#
#   OPDB_DB=compiled.sqlite benchmarks/compiled_models.sh compiled.tgz cuda:0 900
#   OPDB_DB=compiled.sqlite benchmarks/compiled_models.sh compiled.tgz cuda:0 300 measurements/compiled/resnet50.yml lstm
#
# Models are summary files, or names; those of measurements/compiled/ unless said. All are compiled
# as far as their fused groups, then run compiled until half of the seconds are gone, for 20 s at
# least; the rest goes into the groups, one visit each, energies to ± 5 %. The host times of all come
# first, for which each group is compiled: 287 took 142 s on an H200's host (2026-11-23). Then every
# prediction is held against its run. Called again, it goes on where it was. Packed are the database
# as a set and what validate says.
set -euo pipefail

[[ $# -ge 3 && $3 =~ ^[1-9][0-9]*$ ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
packed=$1 device=$2 seconds=$3
shift 3
[ $# -gt 0 ] || set -- "$(dirname "$0")"/../measurements/compiled/*.yml
: "${OPDB_DB:?names the database to measure into}"
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
opdb() { python3 -m opdb "$@"; }

# The database's name of the device is told with what was found.
opdb harvest "$@" --mode compile --device "$device" --quiet --json >"$folder/found.json" || true
slug=$(python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["compiled_for"])' \
    <"$folder/found.json" 2>/dev/null) || slug=
rm "$folder/found.json"

rest=$((seconds / 2 - SECONDS))
timeout --signal=INT --kill-after=60 $((rest > 20 ? rest : 20)) \
    python3 -m opdb modes "$@" --modes compile --device "$device" --quiet || true

rest=$((seconds - SECONDS - 25))
[ "$rest" -lt 20 ] || opdb bench fused enter_graph --this-board --duplicates 0 --device "$device" \
    --rounds 1 --precision 0.05 --max-seconds "$rest" --quiet || true
{
    opdb validate --mode compile ${slug:+--device "$slug"} || true
    opdb validate --kernels ${slug:+--device "$slug"} || true
} 2>&1 | tee "$folder/validate.txt"
opdb export "$folder/set" ${slug:+--device "$slug"} --quiet >/dev/null
tar -czf "$packed.part" -C "$folder" .
mv "$packed.part" "$packed"
