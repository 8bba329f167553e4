#!/usr/bin/env bash
# How a published set is measured: on a machine whose GPUs do nothing else, one process a GPU.
#
#   OPDB_DB=a.sqlite benchmarks/published_set.sh a.tgz cuda:0 900 models measurements/densenet121.yml …
#   OPDB_DB=a.sqlite benchmarks/published_set.sh a.tgz cuda:0 300 grid measurements/grids/others.yml …
#   OPDB_DB=t.sqlite benchmarks/published_set.sh t.tgz cuda:1 900 training measurements/training/resnet50.yml …
#
# `models`: one after the other, its operators, then itself, eager and as a CUDA graph, on one board.
# `generation`: the same of prefills and steps as CUDA graphs, of whole generations in eager (`python
# benchmarks/generation_ladder.py FOLDER` writes the files).
# `training`: the same of training steps, eager alone, one visit each, energies to ± 5 %. `grid`: operators of no
# model. Visits begin within the seconds named; a model whose operators were begun is run
# all the same. What is finished is packed (a.tgz) every two minutes and after every step, and a call
# that was cut off is simply made again. Sets of several boards are joined with `opdb import`, then
# `opdb export`. Where several boards of a host are measured at once, their hosts' times suffer.
set -euo pipefail

[[ $# -ge 5 && $3 =~ ^[1-9][0-9]*$ ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
packed=$1 device=$2 seconds=$3 what=$4
shift 4
: "${OPDB_DB:?names the database to measure into}"
opdb() { python3 -m opdb "$@" --quiet; }

left() { # the seconds that are left, 1 at least: less is no bound that opdb takes
    local rest=$((seconds - SECONDS))
    echo $((rest > 1 ? rest : 1))
}

pack() {
    local folder
    folder=$(mktemp -d)
    opdb export "$folder/set" >/dev/null
    tar -czf "$packed.$BASHPID" -C "$folder/set" .
    mv "$packed.$BASHPID" "$packed"
    rm -r "$folder"
}

keep_packing() { # until this script ends, however it ends
    while sleep 120 && kill -0 $$ 2>/dev/null; do pack || true; done
}
keep_packing >/dev/null 2>&1 & # or who reads this script waits for its last sleep
packing=$!
trap 'kill "$packing" 2>/dev/null || true' EXIT

bench() { opdb bench --device "$device" --this-board --max-seconds "$(left)" "$@"; }

measure() {
    opdb measure --device "$device" "$@"
    pack
}

case $what in
models)
    for file in "$@"; do
        [ "$SECONDS" -lt "$seconds" ] || { echo "the time is up before $file" >&2; exit 1; }
        opdb harvest "$file"
        bench
        pack
        measure --mode eager --mode graph "$file"
    done
    ;;
training)
    for file in "$@"; do
        [ "$SECONDS" -lt "$seconds" ] || { echo "the time is up before $file" >&2; exit 1; }
        opdb harvest "$file"
        bench --rounds 1 --precision 0.05 --duplicates 0.05
        pack
        measure --iters 20 "$file"
    done
    ;;
generation)
    for file in "$@"; do
        [ "$SECONDS" -lt "$seconds" ] || { echo "the time is up before $file" >&2; exit 1; }
        opdb harvest "$file"
        bench
        pack
        mode=graph
        ! grep -q '^phase: generate' "$file" || mode=eager # it looks at each token: no graph can
        measure --mode "$mode" "$file"
    done
    ;;
grid)
    for file in "$@"; do
        bench --grid "$file"
        pack
    done
    ;;
*)
    echo "$what: neither models, generation, training nor grid" >&2
    exit 2
    ;;
esac
