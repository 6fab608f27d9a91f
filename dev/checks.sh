# shellcheck shell=bash
# checks.sh - words for who changes the program: tests, sanitizers, other processors, fuzzing, mutants, GPUs.

# The tests as released; `once`, `all`: under AddressSanitizer and UndefinedBehaviorSanitizer as well, as docs/testing.md says.
run_tests() {
    if [[ ${1:--} != -* && ${1:-} != all && ${1:-} != once ]]; then # names
        build release
        ctest --test-dir "$here/build/release" --output-on-failure --no-tests=error -j "$(nproc)" -R "$(IFS='|'; echo "$*")"
        return
    fi
    ! command -v dpkg-query >/dev/null || (install_packages zsh python3-jsonschema python3-yaml) || say "test_schema is skipped, and zsh is not tested"
    set_up && build release
    if [ "${1:-}" = all ] || [ "${1:-}" = once ]; then
        local sanitized=(-LE released) released=(-L 'real|released')
        [ "$1" = all ] || sanitized=(-LE 'released|heavy|nightly') released=(-L 'real|released|heavy' -LE nightly)
        shift && build dev
        ctest --test-dir "$here/build/dev" --output-on-failure -j "$(nproc)" "${sanitized[@]}" "$@"
        ctest --test-dir "$here/build/release" --output-on-failure -j "$(nproc)" "${released[@]}" "$@"
        [ -e "$cache/smollm2-135m-instruct.gguf" ] ||
            say "skipped: tests on smollm2-135m-instruct, which is not in the model cache (./run model smollm2-135m-instruct)"
        return
    fi
    local log=$here/build/release/test.log status=0
    ctest --test-dir "$here/build/release" --output-on-failure -j "$(nproc)" -LE full "$@" 2>&1 | tee "$log" || status=$?
    say "slowest: $(sed -n 's/.*Test *#[0-9]*: \([a-z0-9_]*\) .* \([0-9.]*\) sec$/\2 s \1/p' "$log" | sort -rn | head -n 5 | paste -sd, | sed 's/,/, /g')"
    say "the sanitizers, the emulated GPU at full size and real models: ./run test all"
    return $status
}

# The test suite kills a few times, under the sanitizers; this uses the release build.
kill_test() {
    set_up
    build release test_killed
    "$here/build/release/test_killed" "${1:-300}" "${2:-2024}"
}

# Threaded code under ThreadSanitizer: the thread team, kernels, sampling on its threads, models, decoding on two threads.
tsan_tests=(test_threads test_matmul test_attention test_row_operations test_sampling test_packed_cache test_bench test_listener test_library)

tsan() {
    local fixed=()
    set_up
    build tsan "${tsan_tests[@]}"
    # ThreadSanitizer does not start with more address space randomization than it knows (GCC 12 and 13, Linux from 6.6 on).
    ! setarch "$(uname -m)" -R true 2>/dev/null || fixed=(setarch "$(uname -m)" -R)
    ${fixed[0]+"${fixed[@]}"} ctest --test-dir "$here/build/tsan" --output-on-failure -j "$(nproc)" \
        -R "^($(IFS='|'; echo "${tsan_tests[*]}"))\$" "$@"
}

# The CPU kernels on ARM processors that qemu emulates, with dot products and without. The results must have the bits of this processor's
# AVX2, and those of plain C. 77: this processor has nothing to compare with.
arm() {
    local to=$here/build/arm
    command -v dpkg-query >/dev/null && install_packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
    set_up
    build release write_bits
    mkdir -p "$to"
    "$here/build/release/write_bits" plain >"$to/plain" 2>"$to/log"
    "$here/build/release/write_bits" avx2 >"$to/avx2" 2>"$to/log" || { say "skipped, as AVX2 is needed: $(cat "$to/log")"; exit 77; }
    build arm write_bits
    arm_has_bits max neon_dotprod avx2 # by default
    arm_has_bits cortex-a53 neon avx2  # without dot products
    arm_has_bits max neon avx2 neon
    arm_has_bits max plain plain plain
}

arm_has_bits() {                 # arm_has_bits CPU ISA REFERENCE [ISA TO CHOOSE]
    local to=$here/build/arm differ
    qemu-aarch64 -cpu "$1" "$to/write_bits" ${4:+"$4"} >"$to/bits" 2>"$to/log" || { cat "$to/log" >&2; die "arm: write_bits failed on $1"; }
    grep -q "^$2," "$to/log" || die "arm: expected $2 on $1, found $(cat "$to/log")"
    differ=$(diff "$to/$3" "$to/bits" | sed -n 's/^> [0-9a-f]* //p')
    [ -z "$differ" ] || die "arm: $2 on $1: $(wc -l <<<"$differ") results differ from $3 of this processor, the first: $(head -n 1 <<<"$differ")"
    say "$2 on $1: $(wc -l <"$to/bits") results with the bits of $3 on this processor"
}

# Slurm's daemons are the test's own; those of the packages need not run. 77: there is no Slurm.
slurm() {
    set_up
    ! command -v dpkg-query >/dev/null || (install_packages slurm-wlm munge) || { say "skipped: Slurm could not be installed"; exit 77; }
    build release speclab write_small_model
    "$here/tests/cli/test_slurm.sh" "$here" "$here/build/release"
}

fuzz_targets() {                 # fuzz_targets [NAME...]: targets by name, "gguf" or "fuzz_gguf"; default: all
    local file name
    [ $# -gt 0 ] || { for file in "$here"/tests/fuzz/fuzz_*.c; do basename "$file" .c; done; return 0; }
    for name in "$@"; do
        name=fuzz_${name#fuzz_}
        [ -e "$here/tests/fuzz/$name.c" ] || die "unknown fuzz target: no tests/fuzz/$name.c"
        echo "$name"
    done
}

fuzz_seeds() {                   # fuzz_seeds NAME: folders with seeds, one a line
    local seeds=$here/build/fuzz/seeds/${1#fuzz_}
    [ ! -d "$seeds" ] || echo "$seeds"
    sed -n "s|^// seeds: |$here/|p" "$here/tests/fuzz/$1.c"
}

# Runs each target; inputs of faults are stored, and named at the end.
fuzz_each() {                    # fuzz_each SECONDS NAME...
    local seconds=$1 out=$here/build/fuzz name log seeds bad=0
    shift
    for name in "$@"; do
        mkdir -p "$out/corpus/$name" "$out/faults"
        log=$out/$name.log
        mapfile -t seeds < <(fuzz_seeds "$name")
        if "$out/$name" -max_total_time="$seconds" -max_len=65536 -timeout=30 -rss_limit_mb=4096 -print_final_stats=1 \
                        -artifact_prefix="$out/faults/$name-" "$out/corpus/$name" "${seeds[@]}" >"$log" 2>&1; then
            say "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs in $seconds seconds," \
                "$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1) edges, no fault"
        else
            bad=1
            grep -v '^#[0-9]' "$log" | tail -n 40 >&2
            say "$name: a fault with the input $(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1); full output in $log"
        fi
    done
    return $bad
}

# Lines reached by corpus and seeds, in each file that a target names as its reader.
fuzz_coverage() {                # fuzz_coverage NAME...
    local out=$here/build/fuzz-coverage name seeds
    install_packages llvm
    build fuzz-coverage fuzz
    ln -sfn ../fuzz/seeds "$out/seeds"
    for name in "$@"; do
        mkdir -p "$here/build/fuzz/corpus/$name"
        mapfile -t seeds < <(fuzz_seeds "$name")
        rm -f "$out/$name".*.profraw
        LLVM_PROFILE_FILE=$out/$name.profraw "$out/$name" -runs=0 -max_len=65536 "$here/build/fuzz/corpus/$name" \
            "${seeds[@]}" >"$out/$name.log" 2>&1 || { tail -n 20 "$out/$name.log" >&2; die "$name failed on its corpus: ./run fuzz 0 $name"; }
        llvm-profdata merge -o "$out/$name.profdata" "$out/$name.profraw"
        llvm-cov export "$out/$name" -instr-profile="$out/$name.profdata" -summary-only 2>/dev/null |
            python3 -c '
import json, os, sys
name, source = sys.argv[1:3]
def line(label, covered, count):
    print("%-34s %5d of %5d lines  %5.1f %%" % (label, covered, count, 100 * covered / max(1, count)))
build = os.path.join(source, "build/fuzz-coverage")                 # relative paths start here
of = {os.path.relpath(os.path.join(build, f["filename"]), source): f["summary"]["lines"]
      for f in json.load(sys.stdin)["data"][0]["files"]}
files = [f for f in sys.argv[3:] if f in of]
line(name, sum(of[f]["covered"] for f in files), sum(of[f]["count"] for f in files))
for f in files:
    line("    " + f, of[f]["covered"], of[f]["count"])
for f in sys.argv[3:]:
    if f not in of:
        sys.exit("%s: its reader %s is not linked" % (name, f))
' "$name" "$here" $(sed -n 's|^// reader: ||p' "$here/tests/fuzz/$name.c")
    done
}

fuzz() {
    local seconds=60 coverage=no words=() word
    for word in "$@"; do
        case $word in
        --coverage) coverage=yes ;;
        *[!0-9]*) words+=("$word") ;;
        *) seconds=$word ;;
        esac
    done
    local names
    names=$(fuzz_targets ${words[0]+"${words[@]}"}) || exit 1
    set_up
    command -v dpkg-query >/dev/null &&
        install_packages clang "$(apt-cache depends clang | sed -n 's/.*Depends: clang-\([0-9]*\)$/libclang-rt-\1-dev/p' | head -n 1)" python3
    build fuzz fuzz
    "$here/build/fuzz/write_seeds" "$here/build/fuzz/seeds" || die "cannot write the seeds"
    # shellcheck disable=SC2086 # names without spaces
    if [ $coverage = yes ]; then fuzz_coverage $names; else fuzz_each "$seconds" $names; fi
}

mutate() {
    set_up
    install_packages g++ lld ccache python3-clang
    exec /usr/bin/python3 "$here/tests/mutate/mutate.py" "$@"
}

gpu() {
    case ${1:-}:${2:-} in
    carry:*) set_up ;;
    first:* | check:* | bench:*) [ -e "$here/build/carry" ] || ! nvidia-smi -L >/dev/null 2>&1 || set_up ;;
    measure:try) build release ;;
    esac
    exec python3 -B "$here/dev/gpu/gpu.py" "$@"
}
