#!/usr/bin/env bash
# How the published runs in all modes are measured: on a machine whose GPU does nothing else.
#
#   OPDB_DB=modes.sqlite benchmarks/published_modes.sh modes.tgz cuda:0 1700
#   OPDB_DB=modes.sqlite benchmarks/published_modes.sh modes.tgz cuda:0 1700 resnet50 vit
#
# The models named, or all five, at batch 1 to 32: first the modes that compile soon, then the one that
# tunes, then their operators, whose sum the runs are held against. After the seconds named it stops
# as by Ctrl-C, with what is finished packed as a set and CSV files (modes.tgz); called again, it goes
# on where it was. Estimated, for it was not run yet, on one H200: 50 minutes, 2 hours, 1 hour.
set -euo pipefail

[ $# -ge 3 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
packed=$1 device=$2 seconds=$3
shift 3
[ $# -gt 0 ] || set -- resnet50 bert-base-uncased vit lstm align
: "${OPDB_DB:?names the database to measure into}"
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

pack() {
    rm -rf "$folder/set"
    python3 -m opdb export "$folder/set" --quiet >/dev/null
    tar -czf "$packed.part" -C "$folder" .
    mv "$packed.part" "$packed"
}

modes() { # runs that a mode refuses are rows too; 130 is the time that is up
    local rest=$((seconds - SECONDS)) status=0
    [ "$rest" -gt 0 ] || return 130
    timeout --signal=INT --kill-after=60 "$rest" python3 -m opdb modes "$1" \
        --batch-sizes 1,2,4,8,16,32 --modes "$2" --device "$device" --csv "$folder/$1.csv" || status=$?
    pack
    case $status in 124 | 130 | 137) return 130 ;; *) return 0 ;; esac
}

for chosen in \
    eager,graph,compile,compile:reduce-overhead,dynamo,trace \
    eager,graph,compile,compile:reduce-overhead,compile:max-autotune,dynamo,trace; do
    for model in "$@"; do
        modes "$model" "$chosen" || { echo "the time is up; call it again to go on" >&2; exit 130; }
    done
done
[ "$seconds" -gt "$SECONDS" ] || { echo "the time is up; operators are left" >&2; exit 130; }
python3 -m opdb bench --this-board --device "$device" --max-seconds $((seconds - SECONDS)) --quiet
pack
