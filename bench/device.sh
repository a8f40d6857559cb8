#!/bin/sh
# Benchmarks on a machine with a real GPU, within eight minutes and without a network there.
#
#   bench/device.sh pack FILE [--tiny]                      here, where `make setup` has run; FILE ends in .tar, .tar.gz …
#   sh device.sh run FILE RESULTS [--minutes N] [--allow-software]     there; needs this script and FILE alone
#
# What is in RESULTS afterwards belongs into bench/results; `python -m bench.report` then brings it into the report.
set -eu

usage() {
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

[ $# -ge 2 ] || usage
action=$1
shift

case $action in
pack)
    root=$(cd "$(dirname "$0")/.." && pwd)
    case $1 in /*) out=$1 ;; *) out=$(pwd)/$1 ;; esac
    shift
    cd "$root"
    exec .venv/bin/python -m bench.device pack "$out" "$@"
    ;;
run)
    [ $# -ge 2 ] || usage
    began=$(date +%s)
    package=$1
    mkdir -p "$2"
    results=$(cd "$2" && pwd)
    shift 2
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    trap 'exit 130' INT TERM
    tar -xf "$package" -C "$folder"
    export PYTHONHOME="$folder/python" PYTHONPATH="$folder/site:$folder" PYTHONNOUSERSITE=1 PYTHONUNBUFFERED=1
    export LD_LIBRARY_PATH="$folder/python/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    "$folder/python/bin/python3" -m bench.device run --began "$began" --results "$results" "$@"
    ;;
*) usage ;;
esac
