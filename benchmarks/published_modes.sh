#!/usr/bin/env bash
# How the published runs in all modes are measured: on a machine whose GPU does nothing else.
#
#   OPDB_DB=modes.sqlite benchmarks/published_modes.sh modes.tgz cuda:0 1700
#   OPDB_DB=modes.sqlite benchmarks/published_modes.sh modes.tgz cuda:0 1700 resnet50 vit
#
# The models named, or all five, one after the other at batch 1 to 32: the modes that compile soon, then
# the operators (one visit each, energies to ± 5 %), whose sum the runs are held against. The mode that
# tunes comes last, for all of them: another board can do that on another day (TUNED_ONLY=1), with an
# eager run of its own to hold it against. After the seconds named it stops as by Ctrl-C, with what is
# finished packed as a set and CSV files (modes.tgz); called again, it goes on where it was.
# BATCH_SIZES (as in 8,16) leaves the others to another board.
set -euo pipefail

[[ $# -ge 3 && $3 =~ ^[1-9][0-9]*$ ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
packed=$1 device=$2 seconds=$3
shift 3
[ $# -gt 0 ] || set -- resnet50 bert-base-uncased vit lstm align
: "${OPDB_DB:?names the database to measure into}" "${BATCH_SIZES:=1,2,4,8,16,32}" "${TUNED_ONLY:=}"
soon=eager,graph,compile,compile:reduce-overhead,dynamo,trace
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

pack() {
    rm -rf "$folder/set"
    python3 -m opdb export "$folder/set" --quiet >/dev/null || return
    tar -czf "$packed.part" -C "$folder" . || return
    mv "$packed.part" "$packed"
}

in_time() { # runs a command until the seconds are gone; what it refuses is a row, too
    local rest=$((seconds - SECONDS)) status=0
    [ "$rest" -gt 0 ] || status=130
    [ "$rest" -le 0 ] || timeout --signal=INT --kill-after=60 "$rest" python3 -m opdb "$@" || status=$?
    pack || [ "$status" -eq 3 ] || exit 2
    case $status in
    3) exit 3 ;; # no model is measured here
    124 | 130 | 137)
        echo "the time is up; call it again to go on" >&2
        exit 130
        ;;
    esac
}

modes() { # modes MODEL MODES FILE
    in_time modes "$1" --batch-sizes "$BATCH_SIZES" --modes "$2" --device "$device" \
        --csv "$folder/$3.csv"
}

[ -n "$TUNED_ONLY" ] || for model in "$@"; do
    modes "$model" "$soon" "$model"
    in_time bench --this-board --rounds 1 --precision 0.05 --device "$device" --quiet
done
for model in "$@"; do
    modes "$model" eager,compile:max-autotune "$model-tuned"
done
