#!/usr/bin/env bash
# How right predictions of compiled models are, on a machine whose GPU does nothing else.
#
#   OPDB_DB=compiled.sqlite benchmarks/compiled_models.sh compiled.tgz cuda:0 400
#   OPDB_DB=compiled.sqlite benchmarks/compiled_models.sh compiled.tgz cuda:0 400 1:float32 resnet18 vit_b_16
#
# Workloads are named by batch:dtype and the models that follow it. All are compiled as far as their
# fused groups, then run compiled until half of the seconds are gone; the rest goes into the groups.
# Then every prediction is held against its run. Called again, it goes on where it was. Packed are
# the database as a set and what validate says.
set -euo pipefail

[[ $# -ge 3 && $3 =~ ^[1-9][0-9]*$ && ${4:-1:} =~ ^[0-9]+: ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
packed=$1 device=$2 seconds=$3
shift 3
[ $# -gt 0 ] || set -- \
    32:bfloat16 bert-base-uncased vit_b_16 resnet50 convnext_tiny \
    1:float32 bert-base-uncased vit_b_16 resnet18 \
    32:float32 resnet18 mobilenet_v3_large efficientnet_b0
: "${OPDB_DB:?names the database to measure into}"
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

slug=
opdb() { python3 -m opdb "$@"; }

each() { # calls a function with the options and models of every batch:dtype
    local said=() models=()
    for word in "${words[@]}" end:; do
        if [[ $word == end: || $word =~ ^[0-9]+: ]]; then # a model of one's own has a colon, too
            [ ${#models[@]} -eq 0 ] || "$1" "${said[@]}" "${models[@]}"
            said=(--batch-size "${word%%:*}" --dtype "${word##*:}") models=()
        else
            models+=("$word")
        fi
    done
}

harvest() { # the database's name of the device is told with what was found
    opdb harvest "$@" --mode compile --device "$device" --quiet --json >"$folder/found.json" || true
    slug=$(python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["compiled_for"])' \
        <"$folder/found.json" 2>/dev/null) || slug=
    rm "$folder/found.json"
}

run() { # what was run before is not run again
    local size=(--batch-sizes "$2" --dtype "$4")
    local rest=$((seconds / 2 - SECONDS))
    shift 4
    [ "$rest" -lt 20 ] || timeout --signal=INT --kill-after=60 "$rest" \
        python3 -m opdb modes "$@" "${size[@]}" --modes compile --device "$device" --quiet || true
}

words=("$@")
each harvest
each run
rest=$((seconds - SECONDS - 25))
[ "$rest" -lt 20 ] || opdb bench fused enter_graph --this-board --duplicates 0 --device "$device" \
    --max-seconds "$rest" --quiet || true
{
    opdb validate --mode compile ${slug:+--device "$slug"} || true
    opdb validate --kernels ${slug:+--device "$slug"} || true
} 2>&1 | tee "$folder/validate.txt"
opdb export "$folder/set" ${slug:+--device "$slug"} --quiet >/dev/null
tar -czf "$packed.part" -C "$folder" .
mv "$packed.part" "$packed"
