# measure.sh - measurements for gpu/first and gpu/bench. To be sourced after programs.sh.
# shellcheck shell=bash

probe() { "$built/probe" || return 1; } # 77: it finds no GPU, though there is one

# BENCH is the program that measures speclab (gpu/bench_gpu.c).
BENCH=${BENCH:-$built/bench_gpu}
export BENCH

speclab_bench() {                # speclab_bench kernels|passes WORDS...
    [ -x "$BENCH" ] || { echo "$BENCH is not built: speclab is not measured"; return 1; }
    "$BENCH" "$@"
}

torch() {                        # torch eager|compiled
    python3 -u "$here/gpu/torch_reference.py" --how "$1" --seconds $((PHASE_SECONDS - 15))
}

# Where the time of the two kernels that matter goes, by hardware counters: the product of 8B's gate in bf16, and attention over
# 8192 tokens, of one row. Of three launches each, the last. The clocks stay as they are.
profile() {
    command -v ncu >/dev/null || { echo "ncu is not installed"; return 77; }
    local what kernel
    while read -r what kernel; do
        ncu --clock-control none --kernel-name "regex:$kernel" --launch-skip 2 --launch-count 1 --section SpeedOfLight \
            --section Occupancy --section WarpStateStats --section LaunchStats --page raw --csv "$BENCH" once "$what" \
            </dev/null >"$built/ncu.csv" 2>&1 || { cat "$built/ncu.csv"; return 1; }
        python3 "$here/gpu/profile.py" "$built/ncu.csv"
    done <<'KERNELS'
matmul small_kernel
attend mma_kernel
KERNELS
}
