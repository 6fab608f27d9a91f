# tests.sh - tests on the GPU of this machine, for gpu/first and gpu/check. To be sourced after programs.sh.
# shellcheck shell=bash

# Tests that use CUDA: those that open the device.
mapfile -t with_cuda < <(grep -lE '\b(gpus_here|gpus_of_bits|backends_open|backend_cuda)\(' "$here"/tests/*/test_*.c | xargs -r -n 1 basename -s .c)

# A test that does not find the device prints that and passes, or is skipped; here it is a failure.
found_the_device() {             # found_the_device OUTPUT
    ! grep -F 'not on this machine: device cuda' "$1" ||
        { echo "ERROR: expected all tests to find the GPU, found some that did not"; return 1; }
}

# Runs one program of $built, ends it before the phase ends, and prints its output if it fails. 77: it has nothing to do here.
run_test() {                     # run_test NAME WORDS...
    local name=$1 out status=0
    out=$(mktemp)
    shift
    (cd "$here" && timeout -k 2 $((PHASE_SECONDS > 8 ? PHASE_SECONDS - 5 : 3)) "$built/$name" "$@") >"$out" 2>&1 || status=$?
    case $status in 0 | 77) found_the_device "$out" || status=1 ;; esac
    case $status in
    0) echo "$name: passed" ;;
    77) status=0; echo "$name: skipped" ;;
    *) cat "$out"; echo "$name: FAILED, status $status" ;;
    esac
    rm -f "$out"
    return $status
}

# Side by side.
run_tests() {                    # run_tests NAME...
    printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' bash -c 'run_test "$1"' run_test '{}'
}

# Drafts, trials and tokens of device verification against those of the host. And the exact output distribution of the rules
# on the device, by bisection of their uniforms. 480 steps are some 10^5.
steps() {                        # steps COUNT
    local status=0
    run_test test_device_verification "$1" || status=1
    run_test test_bisect_device 24 || status=1
    return $status
}

# Under compute-sanitizer kernels take a hundred times as long: tests of operations on the GPU only, with small shapes.
sanitized() {                    # sanitized TOOL TEST...
    command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed"; return 77; }
    local tool=$1 name status=0
    shift
    for name in "$@"; do
        (cd "$here" && compute-sanitizer --tool "$tool" --error-exitcode 9 "$built/$name" cuda small) || status=1
    done
    return $status
}
