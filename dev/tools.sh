# shellcheck shell=bash
# tools.sh - words that need a large environment of their own: `bench --compare` needs llama.cpp, `train` needs torch.

# CMake options of ggml: the instructions of --device cpu:ISA (kernels/cpu/isa.c), or all that this processor has.
peer_options() {                 # peer_options ISA
    local all=(SSE42 AVX AVX2 FMA F16C BMI2 AVX512 AVX512_VNNI AVX512_BF16) n i vnni=OFF
    case $1 in
    '') echo -DGGML_NATIVE=ON; return 0 ;;
    plain) n=0 ;;
    avx2) n=6 ;;
    avx2_vnni) n=6 vnni=ON ;;
    avx512) n=7 ;;
    avx512_vnni) n=8 ;;
    avx512_bf16) n=9 ;;
    *) return 1 ;;
    esac
    printf '%s' "-DGGML_NATIVE=OFF -DGGML_AVX_VNNI=$vnni"
    for i in "${!all[@]}"; do
        if [ "$i" -lt $n ]; then printf ' -DGGML_%s=ON' "${all[i]}"; else printf ' -DGGML_%s=OFF' "${all[i]}"; fi
    done
}

# llama-cpp-python for `bench --compare`, built for the instructions that speclab uses, for a fair comparison.
set_up_peer() {                  # set_up_peer ISA: of --device cpu:ISA; "": this processor's
    [ -z "${SPECLAB_PYTHON:-}" ] || return 0            # the user's own
    local package to log options pip
    package=$(pinned llama_cpp_python)
    to=${XDG_CACHE_HOME:-$HOME/.cache}/speclab/${package/==/-}${1:+-$1}
    options=$(peer_options "$1") || return 0            # speclab refuses the device
    export SPECLAB_PYTHON=$to/bin/python
    [ ! -e "$to/complete" ] || return 0
    command -v dpkg-query >/dev/null && install_packages g++ python3 python3-venv
    say "building $package for ${1:-this processor}, once (10 minutes on 2 cores)"
    log=$(mktemp)
    rm -rf "$to"
    pip=("$SPECLAB_PYTHON" -m pip install --disable-pip-version-check --no-deps)
    if ! { python3 -m venv "$to" && "${pip[@]}" -r "$here/requirements/bench_peer.txt" &&
           CMAKE_ARGS=$options CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) "${pip[@]}" --no-cache-dir --no-build-isolation \
               -r "$here/requirements/llama_cpp_python.txt"; } >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -rf "$log" "$to"
        die "cannot build llama-cpp-python; it is only needed for --compare"
    fi
    rm -f "$log"
    touch "$to/complete"
    say "installed in $to"
}

bench() {
    local isa='' device=' --device[ =]cpu:([a-z0-9_]+) '
    set_up
    build release speclab
    [[ ! " $* " =~ $device ]] || isa=${BASH_REMATCH[1]}
    [[ " $* " != *' --compare '* ]] || set_up_peer "$isa"
    ! is_tool bench "$@" || tool bench "$@"
    program bench "$@"
}

# 77: torch cannot be had, or the model that the recipe names.
train() {                        # train FILE.yaml
    local model
    [ "${1:-}" != --help ] || { echo "Usage: ./run train FILE.yaml (docs/training.md)"; return 0; }
    [ $# = 1 ] && [ -e "$1" ] || die "train: expected a recipe, as experiments/train/tiny.yaml, found \"$*\""
    model=$(sed -n 's/^model: *\([^ ]*\).*/\1/p' "$1")
    command -v dpkg-query >/dev/null && install_packages python3 python3-venv binutils
    set_up
    "$here/python/training/environment" make || exit $?
    build release speclab
    case $model in smollm2-135m-*) fetch_model "$model" || { say "train: skipped: there is no $model"; exit 77; } ;; esac
    PYTHONPATH=$here/python exec "$("$here/python/training/environment" path)/bin/python" -B -m training.pipeline "$1" \
        --speclab "$here/build/release/speclab"
}
