#!/usr/bin/env bash
# test_bench_gpu.sh - bench_gpu measures what it is asked for, on the CPU, and gpu/gpu.py shows it: test_bench_gpu.sh SOURCE BENCH_GPU
# Exit status 77: no python3.
set -uo pipefail
source=$1 bench=$2
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT
bad=0
wrong() { echo "FAILED: $*"; bad=1; }

"$bench" cpu bf16,q4_1 1,3 q,down quick >"$out" || wrong "status $?"
[ "$(grep -c '^{"engine": "speclab", "what": "quick .*"seconds": [0-9.e-]*, "bytes": [1-9]' "$out")" = 8 ] &&
    [ "$(wc -l <"$out")" = 8 ] || wrong "expected 8 measurements, found $(cat "$out")"
python3 -B -c 'import json, sys; sys.path.insert(0, sys.argv[1]); import gpu; print(gpu.table_of([json.loads(line) for line in sys.stdin]))' \
    "$source/gpu" <"$out" | grep '^| quick .*bf16 |.* c [0-9]' >/dev/null || wrong "no table with c(n)"

for words in 'cpu bf16 513' 'cpu bf16 0' 'cpu bf16 1,' 'cpu bf16 1 q other' 'cpu bf16 1 q quick more'; do
    # shellcheck disable=SC2086
    "$bench" $words >"$out" 2>&1 && wrong "\"$words\" is accepted"
    grep -q '^bench_gpu: .*expected ' "$out" || wrong "\"$words\" is refused without a reason"
done
exit $bad
