# phases.sh - phases of gpu/check and gpu/bench, each with a time limit and stored output. To be sourced.
#
#   results NAME SECONDS         stores NAME.log and NAME.txt in $OUT, or build/gpu-results; SECONDS limits all phases together
#   phase NAME SECONDS WORDS...  runs a command or a function of the script, with its output in the log. PHASE_SECONDS is its
#                                limit, which is shorter if less time is left
#   finish                       prints the last line of the summary. Status 0: every phase that could run passed
#
# A failed phase does not stop the others. Status 77: the phase could not run here; its last line is the reason. Lines that
# begin with { are measurements: they go to NAME.jsonl, also those of a phase that failed or ran out of time.
# At most eight files, so that all can be copied back where only a few can.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kept=${OUT:-$here/build/gpu-results}
export here kept

say() { printf 'gpu: %s\n' "$*" >&2; }

results() {
    word=$1 end=$((SECONDS + $2)) failed=0
    export word
    mkdir -p "$kept"
    : >"$kept/$word.log"
    : >"$kept/$word.txt"
    : >"$kept/$word.jsonl"
}

phase() {
    local name=$1 limit=$2 left=$((end - SECONDS)) began=$EPOCHREALTIME log=$kept/$word.log at status line
    shift 2
    if [ "$left" -lt 3 ]; then
        line="not run: no time left"
        failed=1
    else
        [ "$limit" -le "$left" ] || limit=$left
        printf '\n==== %s: %s\n' "$name" "$*" >>"$log"
        at=$(($(wc -c <"$log") + 1))
        # shellcheck disable=SC2046
        export -f $(compgen -A function)
        PHASE_SECONDS=$limit timeout -k 5 "$limit" bash -o pipefail -c '"$@"' "$name" "$@" </dev/null >>"$log" 2>&1
        status=$?
        tail -c "+$at" "$log" | grep '^{' >>"$kept/$word.jsonl"
        case $status in
        0) line=passed ;;
        77) line="skipped: $(tail -n 1 "$log")" ;;
        124 | 137) line="stopped after $limit s" failed=1 ;;
        *) line="failed, status $status" failed=1 ;;
        esac
        case $status in
        0 | 77) ;;
        *) tail -c "+$at" "$log" | grep -v '^{' | tail -n 12 | cut -c 1-300 | sed "s/^/    $name: /" ;;
        esac
    fi
    printf '%-14s %6.1f s  %s\n' "$name" "$(awk "BEGIN { print $EPOCHREALTIME - $began }")" "$line" | tee -a "$kept/$word.txt"
}

finish() {
    local found="every phase that could run passed"
    [ "$failed" = 0 ] || found="not every phase passed"
    printf 'gpu %s: %s; logs in %s\n' "$word" "$found" "$kept" | tee -a "$kept/$word.txt"
    [ -s "$kept/$word.jsonl" ] || rm -f "$kept/$word.jsonl"
    return "$failed"
}

# ---- the machine

# Compute capability of the first GPU, "90" for an H100; empty: no GPU.
capability() {
    command -v nvidia-smi >/dev/null || return 0
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d ' .' | grep -E '^[0-9]+$' || true
}

needs_gpu() {
    export PATH=$PATH:/usr/local/cuda/bin
    capability=$(capability)
    export capability
    [ -n "$capability" ] || { say "expected an NVIDIA GPU known to nvidia-smi, found none: nothing was run"; exit 77; }
}

machine() {
    nvidia-smi --query-gpu=name,memory.total,memory.free,driver_version,compute_cap,clocks.max.sm,clocks.max.mem --format=csv
    nvcc --version | tail -n 2
    uname -sr
    nproc
}

# Unpacks the packages of gpu/carry into build/carried, without changing the system, and sets up a pkg-config that finds them.
unpack_carried() {
    local root=$here/build/carried deb
    [ -e "$here/build/carry" ] || return 0
    if [ ! -e "$root/complete" ]; then
        rm -rf "$root"
        mkdir -p "$root"
        for deb in "$here"/build/carry/*.deb; do dpkg -x "$deb" "$root" || return 1; done
        cat >"$root/pkg-config" <<WRAPPER
#!/bin/sh
LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 \\
PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 PKG_CONFIG_LIBDIR=$root/usr/lib/x86_64-linux-gnu/pkgconfig \\
exec $root/usr/bin/pkgconf "\$@"
WRAPPER
        chmod +x "$root/pkg-config"
        touch "$root/complete"
    fi
    export PKG_CONFIG=$root/pkg-config CMAKE_PREFIX_PATH=$root/usr
}

# Joins the two parts of ./run gpu carry model; 77: they are missing.
carried_model() {                # carried_model TO
    [ -e "$here/build/carry-model-1/part" ] && [ -e "$here/build/carry-model-2/part" ] ||
        { echo "SmolLM2 is missing (./run gpu carry model)"; return 77; }
    cat "$here"/build/carry-model-[12]/part >"$1" || { echo "cannot write SmolLM2 to $1"; return 1; }
    [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$(cat "$here/build/carry/model.sha256")" ] ||
        { echo "SmolLM2: expected the SHA-256 of build/carry/model.sha256, found another"; return 1; }
}

# build/gpu: a release build, with kernels for this GPU only.
build() {                        # build TARGET...
    unpack_carried || { echo "cannot unpack the packages in build/carry"; return 1; }
    cmake -S "$here" --preset release -B "$here/build/gpu" -G Ninja -DSPECLAB_CUDA=on \
        "-DSPECLAB_CUDA_ARCHITECTURES=$capability" &&
        cmake --build "$here/build/gpu" --target "$@"
}
