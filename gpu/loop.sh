# loop.sh - `./run gpu bench loop`: times decoding with 1, 4, 16 and 64 slots (gpu/loop.py) on SmolLM2, on SmolLM2 inflated to
# about 1B and 8B parameters, and with synthetic acceptance on a random Llama-8B with an EAGLE-3 head, all in bf16. Sourced by
# gpu/bench.
#
#     ./run gpu bench loop             on the GPU of this machine; SmolLM2 comes from ./run gpu carry model
#     ./run gpu bench loop try DEVICE  the same phases with small models and the programs of build/release; DEVICE: cpu, or
#                                      cuda for the emulated GPU; phases may take five times as long
#
# Models are created where they are measured, in memory or on disk, and removed afterwards. The most important phase comes first.
# shellcheck shell=bash disable=SC2154

few='' times=1 device=cuda speclab=$built/speclab
case $# in
0) ;;
2)
    [ "$1" = try ] || { say "bench loop: expected nothing or try DEVICE, found \"$*\""; exit 2; }
    built=$here/build/release few=quick times=5 device=$2 speclab=$built/speclab BENCH=$built/bench_gpu
    [ "$device" = cpu ] || { speclab+=_emulated BENCH+=_emulated; }
    ;;
*) say "bench loop: expected nothing or try DEVICE, found \"$*\""; exit 2 ;;
esac
in_memory=/dev/shm/speclab-loop.$$ on_disk=$built/loop.$$
export few device speclab in_memory on_disk

# A folder for this many GB of models: in memory if they fit.
folder_for() {                   # folder_for GB
    local folder free
    rm -rf "$in_memory" "$on_disk" # left by a phase that was stopped
    for folder in "$in_memory" "$on_disk"; do
        mkdir -p "$folder" 2>/dev/null || continue
        free=$(df --output=avail -B G "$folder" | tail -n 1 | tr -dc 0-9)
        [ "${free:-0}" -lt "$1" ] || { echo "$folder"; return 0; }
        rmdir "$folder"
    done
    return 1
}

# run_in GB FUNCTION WORDS...: calls a function with such a folder in $work, and removes it afterwards.
run_in() {
    local size=$1 status
    shift
    [ -z "$few" ] || size=1
    [ -x "$speclab" ] && [ -x "$BENCH" ] || { echo "$speclab and $BENCH are not built"; return 1; }
    work=$(folder_for "$size") || { echo "expected $size GB free in /dev/shm or $built, found less"; return 77; }
    trap 'rm -rf "$work"' EXIT
    "$@"
    status=$?
    rm -rf "$work"
    return "$status"
}

# Measures for the remaining time of the phase, less the time to report.
measured() {                     # measured texts|synthetic MODEL DRAFTER
    local left=$((PHASE_SECONDS - SECONDS - 7))
    echo "models created in $SECONDS s, in $work"
    [ "$left" -ge 10 ] || { echo "no time left to measure"; return 1; }
    # shellcheck disable=SC2086
    "$here/gpu/loop.py" "$1" "$speclab" "$BENCH" "$device" "$2" "$3" "$left" $few
}

synthetic() {
    local shape=shape:llama-8b,type=bf16 ids=32000
    [ -z "$few" ] || shape+=,layers=1,width=64,heads=4,kv_heads=2,head_dim=16,hidden=96,vocab=300,context=512 ids=200
    "$built/write_small_model" "$work/llama-8b-bf16.gguf" "$shape" &&
        "$here/gpu/random_head.py" "$speclab" "$work/llama-8b-bf16.gguf" "$ids" "$work/eagle3" &&
        measured synthetic "$work/llama-8b-bf16.gguf" "$work/eagle3"
}

# A tool of the Python package, by a python3 that has its packages; on the developer's machine ./run sets one up.
tool() {                         # tool WORD ARGUMENT...
    local python=python3
    [ -z "$few" ] || python=$("$here/run" python -c 'import sys; print(sys.executable)') || return 77
    "$python" -c 'import gguf, numpy' 2>/dev/null || { echo "expected python3 with numpy and gguf: python3 -m pip install numpy gguf"; return 77; }
    SPECLAB_PROGRAM=$speclab PYTHONPATH=$here/python "$python" -B -m speclab "$@"
}

# SmolLM2 in bf16, as $work/smollm2.gguf.
smollm2() {
    if [ -n "$few" ]; then
        "$built/write_small_model" "$work/carried.gguf"
    else
        carried_model "$work/carried.gguf"
    fi || return
    tool quantize "$work/carried.gguf" --type bf16 --out "$work/smollm2.gguf"
}

small() {
    local keep=0-11,13,15,17,19-29
    [ -z "$few" ] || keep=0,2
    smollm2 || return
    tool prune "$work/smollm2.gguf" --keep "$keep" --out "$work/pruned.gguf" &&
        measured texts "$work/smollm2.gguf" "$work/pruned.gguf"
}

# With SmolLM2 itself as draft model, whose draft tokens are always accepted: the gain of a perfect draft model of its size.
inflated() {                     # inflated NAME SIZES...
    local name=$1
    shift
    smollm2 || return
    tool inflate "$work/smollm2.gguf" "$@" --out "$work/$name.gguf" &&
        measured texts "$work/$name.gguf" "$work/smollm2.gguf"
}

# 4 and 16 times as wide: their logits equal SmolLM2's to the last bit.
sizes_1b=(--width 2304 --hidden 2816 --heads 32 --kv-heads 8)
sizes_8b=(--width 9216 --hidden 7680 --heads 32 --kv-heads 8)
if [ -n "$few" ]; then
    sizes_1b=(--width 128) sizes_8b=(--width 256 --hidden 192)
else
    needs_gpu
fi
results loop $((520 * times))
if [ -n "$few" ]; then
    phase build 500 cmake --build "$built" --target "$(basename "$speclab")" "$(basename "$BENCH")" write_small_model
else
    phase machine 10 machine
    phase programs 200 programs speclab write_small_model bench_gpu
fi
phase synthetic $((190 * times)) run_in 18 synthetic
phase smollm2 $((70 * times)) run_in 1 small
phase smollm2-1b $((90 * times)) run_in 4 inflated smollm2-1b "${sizes_1b[@]}"
phase smollm2-8b $((170 * times)) run_in 19 inflated smollm2-8b "${sizes_8b[@]}"
finish
status=$?
rm -rf "$in_memory" "$on_disk"
[ ! -e "$kept/loop.jsonl" ] || python3 "$here/gpu/table.py" "$kept/loop.jsonl" | tee "$kept/loop.md"
exit $status
