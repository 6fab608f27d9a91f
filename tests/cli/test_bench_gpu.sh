#!/usr/bin/env bash
# test_bench_gpu.sh - bench_gpu measures what it is asked for, on the CPU, and gpu/table.py shows it: test_bench_gpu.sh SOURCE BENCH_GPU
# Exit status 77: no python3.
set -uo pipefail
source=$1 bench=$2
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT
bad=0
wrong() { echo "FAILED: $*"; bad=1; }

measures() {                     # measures LINES WORDS...
    local lines=$1
    shift
    "$bench" "$@" quick devices=cpu >"$out" || wrong "$*: status $?"
    [ "$(grep -c '^{"engine": "speclab", "what": "quick .*"seconds": [0-9.e-]*, "bytes": [1-9]' "$out")" = "$lines" ] &&
        [ "$(wc -l <"$out")" = "$lines" ] || wrong "$*: expected $lines measurements, found $(cat "$out")"
    python3 "$source/gpu/table.py" "$out" | grep '^| quick .*bf16 |.* c [0-9]' >/dev/null || wrong "$*: no table with c(n)"
}
measures 20 kernels types=bf16,q4_1 rows=1,3
measures 4 passes types=bf16,q8_0 rows=1,3 contexts=1024

for what in matmul attend; do
    "$bench" once $what devices=cpu >"$out" && [ ! -s "$out" ] || wrong "once $what: status $?, output $(cat "$out")"
done
for words in '' 'passes rows=65' 'kernels rows=0' 'kernels rows=1,' 'kernels what=1' 'once' 'once nothing devices=cpu'; do
    # shellcheck disable=SC2086
    "$bench" $words >"$out" 2>&1 && wrong "\"$words\" is accepted"
    grep -q '^bench_gpu: .*expected ' "$out" || wrong "\"$words\" is refused without a reason"
done
exit $bad
