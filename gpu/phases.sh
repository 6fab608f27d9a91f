# phases.sh - phases of gpu/first, gpu/check and gpu/bench, each with a time limit and stored output. To be sourced.
#
#   results NAME SECONDS         stores NAME.log and NAME.txt in $OUT, or build/gpu-results; SECONDS limits all phases together
#   phase NAME SECONDS WORDS...  runs a command or a function of the script, with its output in the log. PHASE is its name,
#                                PHASE_SECONDS its limit, which is shorter if less time is left
#   finish                       prints the last line of the summary. Status 0: every phase that could run passed
#
# A phase ends with the first command that fails (errexit), and has failed; it does not stop the others. The summary has the
# lines of its output that name an error. Status 77: the phase could not run here; its last line is the reason. Lines that
# begin with { are measurements: they go to NAME.jsonl, also those of a phase that failed or ran out of time.
# At most eight files, so that all can be copied back where only a few can.
# shellcheck shell=bash

unset CDPATH
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

# The lines of a failed phase's output (stdin) that name an error; without any, the last ones.
errors_of() {                    # errors_of PHASE
    local text found
    text=$(grep -v '^{' | cut -c 1-200)
    found=$(grep -E 'ERROR|FAILED|[Ee]rror:|(cuda|cublas):[0-9]+: |^=+ Invalid|Assertion|^gpu: ' <<<"$text" |
            grep -v 'not on this machine: device cublas' | awk '!seen[$0]++' | head -n 8)
    [ -n "$found" ] || found=$(tail -n 8 <<<"$text")
    [ -z "$found" ] || sed "s/^/    $1: /" <<<"$found"
}

phase() {
    local name=$1 limit=$2 left=$((end - SECONDS)) began=$EPOCHREALTIME log=$kept/$word.log at status=0 line
    shift 2
    at=$(($(wc -c <"$log") + 1))
    if [ "$left" -lt 3 ]; then
        line="not run: no time left" status=1
    else
        [ "$limit" -le "$left" ] || limit=$left
        printf '\n==== %s: %s\n' "$name" "$*" >>"$log"
        at=$(($(wc -c <"$log") + 1))
        # shellcheck disable=SC2046
        export -f $(compgen -A function)
        PHASE=$name PHASE_SECONDS=$limit timeout -k 5 "$limit" bash -e -o pipefail -c '"$@"' "$name" "$@" \
            </dev/null >>"$log" 2>&1 || status=$?
        tail -c "+$at" "$log" | grep '^{' >>"$kept/$word.jsonl"
        case $status in
        0) line=passed ;;
        77) line="skipped: $(tail -n 1 "$log")" ;;
        124 | 137) line="stopped after $limit s" ;;
        *) line="failed, status $status" ;;
        esac
    fi
    {
        printf '%-14s %6.1f s  %s\n' "$name" "$(awk "BEGIN { print $EPOCHREALTIME - $began }")" "$line"
        case $status in 0 | 77) ;; *) tail -c "+$at" "$log" | errors_of "$name" ;; esac
    } | tee -a "$kept/$word.txt"
    case $status in 0 | 77) ;; *) failed=1 ;; esac
}

finish() {
    local found="every phase that could run passed"
    [ "$failed" = 0 ] || found="not every phase passed"
    printf 'gpu %s: %s; logs in %s\n' "$word" "$found" "$kept" | tee -a "$kept/$word.txt"
    [ -s "$kept/$word.jsonl" ] || rm -f "$kept/$word.jsonl"
    return "$failed"
}

# The table of the measurements, NAME.md, printed as well.
table() {
    [ ! -e "$kept/$word.jsonl" ] || python3 "$here/gpu/table.py" "$kept/$word.jsonl" | tee "$kept/$word.md"
}
