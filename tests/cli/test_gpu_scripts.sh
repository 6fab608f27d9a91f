#!/usr/bin/env bash
# test_gpu_scripts.sh - a failure of anything that dev/gpu/gpu.py runs for measure, first, check or bench is a failure of its phase:
#     test_gpu_scripts.sh SOURCE
#
# In a copy of the script every program is a stub that writes down its phase and its words, and fails where it is told to. Each run
# seeds a failure in the k-th call of every phase that has one; exactly these phases must have failed, and the script with status 1.
# Needs no GPU. Exit status 77: no python3 or no xz.
set -uo pipefail
source=$1
command -v python3 >/dev/null && command -v xz >/dev/null || { echo "no python3 or no xz"; exit 77; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
bad=0
wrong() { echo "FAILED: $*"; bad=1; }

# ---- a copy of what the script reads, and stubs

copy=$root/copy bin=$root/bin stubs=$root/programs
mkdir -p "$copy/tests/device" "$copy/tests/unit" "$copy/experiments" "$copy/build/carry" "$bin" "$stubs"
mkdir "$copy/dev"; cp -r "$source/dev/gpu" "$copy/dev"
cp "$source"/tests/device/test_{matmul,rounded}.c "$copy/tests/device" # check runs those that it finds
cp "$source"/tests/unit/test_padding.c "$copy/tests/unit"
cp -r "$source/experiments/smoke.yaml" "$source/experiments/data" "$copy/experiments"

# A stub writes "PHASE<tab>WORDS" and fails if a line of $root/plan is "PHASE<tab>K" and this is the phase's K-th call. Hundreds of runs call it, so
# it starts no program but flock.
cat >"$root/stub" <<STUB
#!/bin/sh
case "\$*" in *--query-gpu=compute_cap*) echo 9.0; exit ;; *--clock-control*) cat "$root/ncu.csv" ;; esac
name=\${0##*/} k=0
{
    flock 9
    printf '%s\t%s\n' "\$PHASE" "\$name \$*" >>"$root/calls"
    [ ! -e "$root/count.\$PHASE" ] || read -r k <"$root/count.\$PHASE"
    k=\$((k + 1))
    echo \$k >"$root/count.\$PHASE"
} 9>"$root/lock"
echo "\$name passes by"
case \$name:\$1 in
write_small_model:*) : >"\$1" ;;
speclab:bench) echo '{"placements": [{"medians": []}]}' ;;
speclab:run) for last; do :; done; cp "$root/empty.db" "\$last" ;;
speclab:inspect) echo '{"width": 8, "heads": 1, "kv_heads": 1, "head_dim": 8, "hidden": 8, "layers": 2, "vocab": 64, "context": 64, "rope_theta": 1}' ;;
esac
while read -r phase seeded; do
    [ "\$phase \$seeded" != "\$PHASE \$k" ] || { echo "cuda:0: seeded: an error in \$name"; exit 3; }
done <"$root/plan"
STUB
chmod +x "$root/stub"
python3 -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute("CREATE TABLE run_summary (run)")' "$root/empty.db"
pass_of() {                      # pass_of NS: the kernels of a pass, as ncu prints them
    for kernel in take norm small mma small norm small small head; do
        echo "\"0\",\"$kernel\",\"(1, 1, 1)\",\"(256, 1, 1)\",\"$1\",\"2,000,000\""
    done
}
{
    echo '==PROF== Profiling "small": 0%....100%'
    echo '"ID","Kernel Name","Grid Size","Block Size","gpu__time_duration.sum","dram__bytes_read.sum"'
    echo '"","","","","ns","byte"'
    echo '"0","of_a_prompt","(1, 1, 1)","(256, 1, 1)","1","1"'
    pass_of 900
    pass_of 1,000
} >"$root/ncu.csv"
for name in nvidia-smi nvcc cmake ncu compute-sanitizer; do ln -s ../stub "$bin/$name"; done
names=(speclab write_small_model probe)
for file in "$source"/tests/{device,unit}/test_*.c; do names+=("$(basename "$file" .c)"); done
for name in "${names[@]}"; do cp "$root/stub" "$stubs/$name"; done
printf 'import os, sys\nos.execv("%s/stub.torch", ["torch"] + sys.argv[1:])\n' "$root" >"$copy/dev/gpu/torch_passes.py"
ln -s stub "$root/stub.torch"
carry() {                        # as `gpu.py carry` does
    tar -C "$stubs" -cJf "$copy/build/carry/programs.tar.xz" .
    echo 90 >"$copy/build/carry/programs.capability"
    python3 -B -c 'import sys; sys.path.insert(0, sys.argv[1]); import gpu; print(gpu.sources_hash())' "$copy/dev/gpu" >"$copy/build/carry/programs.hash"
}

# ---- runs

run() {                          # run PLAN SCRIPT WORDS...: status in $status, output in $root/out, the summary in $summary
    local script=$2
    printf '%b' "$1" >"$root/plan"
    shift 2
    rm -rf "$root/calls" "$root"/count.* "$root/kept"
    : >"$root/calls"
    PATH=$bin:$PATH OUT=$root/kept PHASE='' python3 -B "$copy/dev/gpu/gpu.py" "$script" "$@" >"$root/out" 2>&1
    status=$?
    summary=$root/kept/$script.txt
}

passes() {                       # passes SCRIPT WORDS...: nothing is seeded
    run '' "$@"
    if [ $status != 0 ] || grep -qE ' (failed|skipped|not run|stopped)' "$summary"; then
        wrong "$*: status $status with nothing seeded"
        cat "$root/out"
    fi
}

# Seeds a failure in every call in turn. The calls of `programs` are seeded alone, since nothing runs without programs.
seed() {                         # seed SCRIPT WORDS...
    local calls=$root/all k phases phase
    passes "$@"
    cp "$root/calls" "$calls"
    for ((k = 1; ; k++)); do
        phases=$(cut -f 1 "$calls" | sort | uniq -c | awk -v k=$k '$1 >= k && $2 != "programs" { print $2 }')
        [ -n "$phases" ] || break
        # shellcheck disable=SC2086
        run "$(printf '%s\\t'"$k"'\\n' $phases)" "$@"
        [ $status = 1 ] || wrong "$*: status $status with a failure in call $k of $(paste -sd ' ' <<<"$phases")"
        while read -r phase; do
            grep -qE "^$phase .* failed" "$summary" || wrong "$*: call $k of $phase fails, and the phase does not: $(grep "^$phase	" "$calls" | sed -n "${k}p")"
            grep -qE "^    $phase: cuda:0: seeded: an error in " "$summary" || wrong "$*: call $k of $phase fails, and the summary does not say why"
        done <<<"$phases"
        [ "$(grep -c ' s  failed$' "$summary")" = "$(wc -l <<<"$phases")" ] || wrong "$*: other phases failed than those with a failure in call $k"
    done
    echo "$*: $(wc -l <"$calls") calls, $(cut -f 1 "$calls" | sort -u | wc -l) phases"
}

carry
seed measure
seed first
seed check
seed bench
seed bench torch

# What is carried does not run here, or is of other sources: it is built, and a failure of that is one.
builds() {                       # builds WHY
    run '' check
    [ $status = 0 ] && grep -q "^programs	cmake --build" "$root/calls" || wrong "the programs are not built: $1"
    rm -rf "$copy/build/gpu-programs"
}
mkdir -p "$copy/build/gpu" && cp "$stubs"/* "$copy/build/gpu"
rm -rf "$copy/build/gpu-programs"
run 'programs\t1\n' check        # call 1: speclab --version
[ $status = 0 ] && grep -q "^programs	cmake --build" "$root/calls" || wrong "carried programs that do not run are not built"
rm -rf "$copy/build/gpu-programs"
echo 'int other;' >"$copy/tests/device/other.c"
builds "other sources"
for k in 1 2 3; do
    run "programs\\t$k\\n" check
    [ $status = 1 ] && grep -qE "^programs .* failed" "$summary" || wrong "call $k of a build fails, and the phase does not"
    rm -rf "$copy/build/gpu-programs"
done
rm "$copy/build/carry/programs.tar.xz"
builds "nothing carried"
rm "$copy/tests/device/other.c"
carry

# A test that does not find the GPU is a failure, though it passes or is skipped. Others may be skipped.
for status_of_test in 0 77; do
    cp "$root/stub" "$stubs/test_rounded"
    sed -i "\$a echo 'not on this machine: device cuda:0: seeded'; exit $status_of_test" "$stubs/test_rounded"
    carry
    rm -rf "$copy/build/gpu-programs"
    run '' first
    [ $status = 1 ] && grep -qE '^bits .* failed' "$summary" || wrong "a test without the GPU passes, with status $status_of_test"
done
cp "$root/stub" "$stubs/test_rounded"
sed -i '$a exit 77' "$stubs/test_rounded"
carry
rm -rf "$copy/build/gpu-programs"
run '' first
[ $status = 0 ] || wrong "a skipped test fails"
for line in 'layer: 1 rows: 9 kernels, 9.0 us alone' 'layer: 16 rows: 4 x small (1, 1, 1): 1.00 us, 2.0 MB, 2.00 TB/s'; do
    [ "$(grep -cxF "$line" "$root/out")" = 1 ] || wrong "kernels of a layer are not printed: $line"
done

[ "$(wc -c <"$root/out")" -lt 24000 ] && [ "$(tail -n 1 "$root/out" | cut -c 1-10)" = "gpu first:" ] || wrong "first does not end with its summary"

# measure builds nothing: it says what is wrong.
echo 'int other;' >"$copy/tests/device/other.c"
run '' measure
[ $status = 77 ] && grep -q 'the programs in build/carry are of other sources' "$root/out" && ! grep -q cmake "$root/calls" || wrong "measure with other sources: status $status"
rm "$copy/tests/device/other.c" "$copy/build/carry/programs.tar.xz"
run '' measure
[ $status = 77 ] && grep -q 'build/carry has no programs' "$root/out" || wrong "measure without programs: status $status"
PATH=/usr/bin:/bin OUT=$root/kept python3 -B "$copy/dev/gpu/gpu.py" first >"$root/out" 2>&1
[ $? = 77 ] || wrong "without a GPU: expected status 77"
exit $bad
