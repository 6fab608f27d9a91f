# shellcheck shell=bash
# demo.sh - `./run demo`, and the tables of README.md that are made of it.

# The draft length that pays most on this machine: 2, 4 or 8 tokens. A step that drafts k tokens yields 1 + a_1 + .. + a_k tokens at the cost
# of a pass of k + 1 rows, c(k + 1). a: acceptance by position of lookups on the first half of Spec-Bench (SmolLM2-135M-Instruct, greedy).
draft_length() {                 # draft_length DB
    rm -f "$1" "$1-wal" "$1-shm"     # of an older schema
    program bench smollm2-135m-instruct --rows 1,3,5,9 --contexts 256 --prefill 0 --repeats 5 --json --db "$1" >/dev/null 2>&1 || { echo 4; return 0; }
    sqlite3 "$1" "
        WITH a(position, rate) AS (VALUES (1, .60), (2, .47), (3, .40), (4, .35), (5, .31), (6, .29), (7, .27), (8, .25)),
        pass AS (SELECT n, min(ns) AS ns FROM bench_time WHERE what = 'pass' AND peer = 0 AND bench = (SELECT max(id) FROM bench) GROUP BY n)
        SELECT p.n - 1 FROM pass AS p WHERE p.n > 1
        ORDER BY (1 + (SELECT sum(rate) FROM a WHERE position < p.n)) / p.ns DESC LIMIT 1"
}

# Results of another revision are not resumed: their database gets a name that is free. Closing it, sqlite3 completes the file and removes
# its log, DB-wal; a log that stays is another program's, whose results would be lost.
put_aside() {                    # put_aside DB
    local old name to n=1
    [ -e "$1" ] || return 0
    old=$(sqlite3 "$1" 'SELECT revision FROM run LIMIT 1' 2>/dev/null || true)
    [[ -n $old && "$(program --version)" != *"($old)"* ]] || return 0
    [ ! -e "$1-wal" ] || die "$1 is in use by another program: expected a database that can be renamed, since its revision is $old"
    name=${1%.db}-${old// /-}
    to=$name.db
    while [ -e "$to" ]; do
        n=$((n + 1))
        to=$name-$n.db
    done
    mv -n "$1" "$to"
    [ ! -e "$1" ] || die "cannot rename $1: $to exists"
    say "$1 was of revision $old, and is $to now"
}

demo() {
    local tokens db=${demo_db:-demo.db} yaml
    set_up
    build release speclab
    put_aside "$db"
    yaml=$here/build/$(basename "$db").yaml        # a folder below the repository, as experiments/, for the same relative paths
    if (fetch_model smollm2-135m-instruct); then
        if ! [ -e "$db" ] || ! [ "$yaml" -nt "$here/experiments/demo.yaml" ]; then
            tokens=$(draft_length "$here/build/demo-bench.db")
            say "draft length $tokens, by the cost of a pass of 1, 3, 5 and 9 rows on this machine"
            sed -e "s|tokens: 4|tokens: $tokens|" -e "s|file: data/|file: ../experiments/data/|" "$here/experiments/demo.yaml" >"$yaml"
        fi
        program run "$yaml" --db "$db" "$@"
        (tool report --db "$db" --experiment demo)
        say "all steps are in $db: sqlite3 $db, or ./run report --help"
    else
        say "continuing without the real model: the demo uses a small model with random weights"
        build release write_small_model
        tiny_models
        program run "$here/experiments/smoke.yaml" --db "$db" "$@"
        (tool report --db "$db" --experiment smoke)
    fi
}

# The table of README.md: the demo on the present revision, in a fresh database.
readme() {
    demo_db=$(mktemp -d)/readme.db
    demo
    program report --db "$demo_db" --csv | python3 "$here/docs/readme.py" "$here/README.md" demo
}

# The table of docs/drafters.md: every drafter, on both targets. Texts for the datastore, and the larger target with its heads, are made here.
readme_drafters() {
    local db kind texts=$cache/smollm2-135m-chat.jsonl one=smollm2-135m-instruct
    set_up
    build release speclab
    [ -e "$here/experiments/data/spec_bench.jsonl" ] || die "experiments/data/spec_bench.jsonl: not in this repository; experiments/data/README.md says what to put there"
    fetch_model smollm2-135m-pruned
    if ! [ -e "$cache/smollm2-135m-chat.store" ]; then
        "$here/run" distill $one --invent 4000 --tokens 400000 --temperatures 0,0.7 --out "$texts" \
                --exclude "$here/experiments/data/spec_bench.jsonl" --exclude "$here/experiments/data/prompts.jsonl"
        "$here/run" features $one "$texts" --datastore "$cache/smollm2-135m-chat.store"
    fi
    [ -e "$cache/smollm2-1b.gguf" ] ||
        (tool inflate $one --width 2304 --hidden 2816 --heads 32 --kv-heads 8 --out "$cache/smollm2-1b.gguf")
    [ -e "$cache/smollm2-135m-q4_0.gguf" ] || (tool quantize $one --type q4_0 --out "$cache/smollm2-135m-q4_0.gguf")
    for kind in eagle3 medusa blockwise; do
        rm -rf "$cache/smollm2-1b-$kind"       # a head that was trained again
        (tool inflate "$here/heads/smollm2-135m-$kind" --target "$cache/smollm2-1b.gguf" --out "$cache/smollm2-1b-$kind")
    done
    db=${1:-$(mktemp -d)/drafters.db}
    program run "$here/experiments/drafters/drafters.yaml" --db "$db"
    program run "$here/experiments/drafters/drafters-1b.yaml" --db "$db"
    program report --db "$db" --csv | python3 "$here/docs/readme.py" "$here/docs/drafters.md" drafters
    say "all steps are in $db"
}
