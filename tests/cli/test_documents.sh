#!/usr/bin/env bash
# test_documents.sh - runs every example of README.md, CONTRIBUTING.md and docs/*.md: test_documents.sh SOURCE BUILD
#
# The examples are read from the pages: commands in code blocks and `inline`, and blocks marked yaml (read by --dry-run), sql (run on
# demo.db, or the database that a first line `-- NAME.db` names), c (compiled) and python. They run in a scratch folder, in the order of
# the pages, where small models with random weights bear the models' names, and `./run` is the real script with stand-ins for what builds
# and installs. An example must succeed and print something; files that are named, links and options must exist.
#
# tests/cli/documents.txt lists the examples that run in another form, with the reason. Of `speclab WORD` and `./run WORD` alone, within a
# sentence, and of commands with a placeholder, as MODEL or `..`, WORD --help must succeed. `speclab` is what `pip install ./python` installs. 77: its packages cannot be had here.
set -euo pipefail
source=$1 build=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$source/run" python -c '' 2>"$scratch/log" || { cat "$scratch/log" >&2; exit 77; }
python=$("$source/run" python -c 'import sys; print(sys.prefix)')
. "$source/tests/scripts/sanitizers.sh"
export XDG_CACHE_HOME=$scratch/cache PATH=$scratch/bin:$PATH SPECLAB_PROGRAM=$build/speclab
models=$XDG_CACHE_HOME/speclab/models
pages=(README.md CONTRIBUTING.md)
cd "$source"
pages+=(docs/*.md)
bad=0
fault() { printf '%s\n' "$*"; bad=1; }

# ---- the scratch folder

stand_in() {                     # stand_in PATH: an executable, from stdin
    mkdir -p "$(dirname "$1")"
    { echo '#!/bin/sh'; cat; } >"$1"
    chmod +x "$1"
}

cd "$scratch"
mkdir -p bin stand-ins build/release "$models"
cp "$source/run" "$source/README.md" .
cp -r "$source/experiments" "$source/docs" .
for folder in results examples engine tests drafters verifier sampling dev commands python requirements cmake Dockerfile; do ln -s "$source/$folder" .; done
for program in speclab write_small_model; do ln -s "$build/$program" build/release; done
touch build/release/build.ninja build/release/CMakeCache.txt
stand_in bin/cmake <<<'echo "cmake $*"'
stand_in bin/ctest <<<'echo "1/1 Test #1: test_x ... Passed 0.10 sec"; echo "ctest $*"'
stand_in bin/dpkg-query <<<'for name; do echo "$name install ok installed"; done'
stand_in bin/apt-cache <<<'true'
stand_in bin/nvidia-smi <<<'echo "No devices were found"; exit 6'
sum=$(sed -n 's/^ *local sum=\([0-9a-f]*\)$/\1/p' dev/models.sh)
stand_in bin/sha256sum <<<"echo $sum"
started=$XDG_CACHE_HOME/speclab/python-${sum:0:12}
stand_in "$started/bin/python" <<END
case " \$* " in *--plugin* | *check-drafter* | *" features "*) exec ${sanitized[*]} $python/bin/python "\$@" ;; esac
case " \$* " in *page.py*) ! grep -qE 'speclab.(decode|Target)' page.py || exec ${sanitized[*]} $python/bin/python "\$@" ;; esac
exec $python/bin/python "\$@"
END
touch "$started/complete"
stand_in bin/speclab <<<"PYTHONPATH=$source/python SPECLAB_PROGRAM=$build/speclab exec $started/bin/python -P -B -m speclab \"\$@\""
stand_in build/release/test_killed <<<'echo "killed ${1:?} times"'
stand_in build/fuzz/write_seeds <<<'echo "seeds in ${1:?}"'
for file in "$source"/tests/fuzz/fuzz_*.c; do stand_in "build/fuzz/$(basename "$file" .c)" <<<'echo "stat::number_of_executed_units: 1"'; done

"$build/write_small_model" "$models/smollm2-135m-instruct.gguf" 30 2048 as=q4_0
"$build/write_small_heads" "$models/smollm2-135m-instruct.gguf" "$models"/{medusa-vicuna-7b-v1.3,EAGLE-Vicuna-7B-v1.3,EAGLE3-LLaMA3.1-Instruct-8B}
ln -s smollm2-135m-instruct.gguf "$models/Llama-3.1-8B-Instruct.gguf"
"$build/write_small_model" "$models/smollm2-135m-pruned.gguf" 30 2048 as=q4_0 keep=0-11,13,15,17,19-29
grep -v input_ids experiments/data/smoke.jsonl >experiments/data/prompts.jsonl
echo '{"text": "The cat sat on the mat."}' >texts.jsonl
echo '{"question": "Who sat on the mat?"}' >questions.jsonl
echo '{"input_ids": [1, 5, 9, 7, 2], "loss_mask": [0, 0, 1, 1, 1]}' >conversations.jsonl
printf 'def read_sql(query, database):\n    return database.execute(query).fetchall()\n' >stand-ins/pandas.py
cat >all.yaml <<'YAML'
name: all
target: {model: smollm2-135m-instruct}
prompts: {file: experiments/data/prompts.jsonl, chat: auto}
limits: {new_tokens: 16, context: 2048}
record: {trials: true, expected: true, rows: 8}
cells:
  sampling: [{temperature: 0}, {temperature: 1}]
  drafter: [{kind: none}, {kind: ngram}, {kind: small, model: smollm2-135m-pruned, tokens: 3}]
YAML
speclab run all.yaml --db results.db 2>/dev/null
cp results.db demo.db
mkdir heads
ln -s "$models/EAGLE3-LLaMA3.1-Instruct-8B" heads/smollm2-135m-eagle3
ln -s "$models/medusa-vicuna-7b-v1.3" heads/smollm2-135m-medusa
sed "s|file: data/|file: ../experiments/data/|" experiments/demo.yaml >build/demo.db.yaml    # as if ./run demo had chosen a draft length
speclab run build/demo.db.yaml --db demo.db 2>/dev/null

# Every option: of speclab's commands, of the scripts, of nvcc.
words_of() { speclab --help | sed -n 's/^  \(\.\/run \)\{0,1\}\([a-z][a-z]*\)  .*/\2/p'; }
for word in $(words_of); do
    speclab "$word" --help
    option=$(sed -n 's/^# with //p' "python/speclab/words/$word.py" 2>/dev/null || true)
    [ -z "$option" ] || { echo "$option"; speclab "$word" "${option%% *}" --help || true; }      # --trace-html FILE takes the word
done >options.txt
cat run tests/mutate/mutate.py "$source/cmake/cuda.cmake" >>options.txt

# ---- what is on the pages

# One example a line: page, line, language or "inline", text with a line's end as \001.
examples() {
    local page
    for page in "${pages[@]}"; do awk -v page="$page" '
        function put(line, language, text) { gsub(/\n/, "\001", text); print page "\002" line "\002" language "\002" text }
        function end_paragraph(    rest) {
            for (rest = paragraph; match(rest, /`[^`]+`/); rest = substr(rest, RSTART + RLENGTH))
                put(first, "inline", substr(rest, RSTART + 1, RLENGTH - 2))
            paragraph = ""
        }
        function end_block() { if (block != "") put(first, language, block); block = "" }
        /^ *```/ {
            if (!fence) { end_paragraph(); end_block(); language = $0; gsub(/[ `]/, "", language); first = FNR + 1 } else end_block()
            fence = !fence; next
        }
        fence { block = block $0 "\n"; next }
        /^    / && (blank || indented) {
            if (!indented) { end_paragraph(); first = FNR; language = "" }
            indented = 1; block = block substr($0, 5) "\n"; next
        }
        { if (indented) end_block(); indented = 0; blank = ($0 == "") }
        blank { end_paragraph(); next }
        { if (paragraph == "") first = FNR; paragraph = paragraph (paragraph == "" ? "" : " ") $0 }
        END { end_paragraph(); end_block() }' "$source/$page"
    done
}

is_command='^(\./[a-z_]+|speclab|echo|sqlite3|duckdb|cc|gcc|make|cmake|ctest|python3|pip3?|git|sudo|apt(-get)?|docker|build/[a-z_/]+|tests/[a-z_]+\.(sh|py)) '

# ---- those that run in another form

declare -A instead seen          # an entry that ends with * is for all examples that begin so
while IFS= read -r line; do
    case $line in
    '' | '#'*) ;;
    '    => '*) instead[$listed]=${line#    => } ;;
    '    '*) ;;                   # the reason
    *) listed=$line instead[$listed]='' ;;
    esac
done <"$source/tests/cli/documents.txt"
for listed in "${!instead[@]}"; do
    [ -n "${instead[$listed]}" ] || fault "tests/cli/documents.txt: $listed: expected what runs instead (=> ...), found nothing"
done

entry_of() {                     # entry_of EXAMPLE: sets entry, or ""
    entry=$1
    [ -z "${instead[$1]:-}" ] || return 0
    for entry in "${!instead[@]}"; do
        [[ $entry != *'*' || $1 != "${entry%'*'}"* ]] || return 0
    done
    entry=''
}

# ---- running them

# What a command shows at least.
declare -A shows=([generate]=. [inspect]='layers|"ids"|"text"|perplexity' [run]='stored already|cells' [make]=' in '
                  [report]='tokens/s|tokens_per_s|toprule|answers|exports|measured|wrote|^[^ ]*html$|^FILE$' [compare]='tokens/s' [bench]='rows|pass' [exact]='erdict|exact|bits' [heads]='top|depth' [list]='ngram'
                  [import]='prompts of|spec-bench')

fails() {                        # fails PLACE COMMAND [STATUS]: runs it in the scratch folder
    local status=0 out words
    read -ra words <<<"$2"
    case $2 in *--out\ *) rm -rf "$(sed 's/.*--out \([^ ]*\).*/\1/' <<<"$2")" ;; esac
    out=$(timeout 120 bash -o pipefail -c "$2" </dev/null 2>&1) || status=$?
    if [ $status != "${3:-0}" ] || grep -q 'ERROR: [A-Za-z]*Sanitizer\|runtime error' <<<"$out"; then
        fault "$1: $2: expected status ${3:-0}, found $status:"
        tail -n 5 <<<"$out"
        return
    fi
    if [[ $2 = *' > '* ]]; then
        [ -s "$(sed 's/.*> \([^ ]*\).*/\1/' <<<"$2")" ] || [[ $2 = *'> /dev/null' ]] || fault "$1: $2: expected a file, found an empty one"
    elif [ -z "$out" ]; then
        fault "$1: $2: expected output, found none"
    fi
    case ${words[0]} in
    speclab | ./run | build/release/speclab)
        local shown=${shows[${words[1]:-}]:-}
        [[ $2 = *--help* || -z $shown ]] || grep -qE -- "$shown" <<<"$out" || { fault "$1: $2: expected /$shown/, found:"; tail -n 5 <<<"$out"; }
        ;;
    esac
}

option_exists() {                # option_exists PLACE WORD
    [[ ! $2 =~ ^--[a-z-]+ ]] || grep -qe "${BASH_REMATCH[0]}\b" options.txt || fault "$1: $2: expected an option of a command, found none"
}

placeholder='^((\./run|speclab|build/release/speclab) [a-z]+)( .*)?[ =]([A-Z]+(/[A-Z]|\.[a-z]+)?|experiments/NAME\.yaml|\.\.\.?)( |$)'
commands=0
command_runs() {                 # command_runs PLACE COMMAND KIND
    local place=$1 text=$2 words run status=0 entry word
    text=$(sed 's/ \{1,\}# .*//; s/ *$//' <<<"$text")
    [ -z "${seen[$text]:-}" ] || return 0
    seen[$text]=1
    commands=$((commands + 1))
    read -ra words <<<"$text"
    run=$text
    entry_of "$text"
    if [ -n "$entry" ]; then
        seen[$entry]=1
        run=${instead[$entry]}
        [[ $run != [0-9]*' '* ]] || { status=${run%% *}; run=${run#* }; }
    elif [[ $text =~ $placeholder ]]; then
        run="${BASH_REMATCH[1]} --help"
    elif [ "$3" = inline ] && [ ${#words[@]} = 2 ]; then
        words_of | grep -qx -- "${words[1]}" && run="speclab ${words[1]} --help"
    fi
    if [ "$run" != "$text" ]; then
        [[ $text != ./run* && $text != speclab* ]] || for word in "${words[@]}"; do option_exists "$place" "$word"; done
        [ -z "${seen[$run]:-}" ] || return 0
        seen[$run]=1
    fi
    fails "$place" "$run" "$status"
}

header() {                       # header LINE: an experiment up to its cells, with this line
    printf 'name: page\ntarget: {model: smollm2-135m-instruct}\nprompts: {file: data/prompts.jsonl}\nlimits: {new_tokens: 8, context: 512}\n%s\ncells:\n' "$1"
}

while IFS=$'\002' read -r page line language text; do
    place=$page:$line
    text=${text//$'\001'/$'\n'}
    case $language in
    inline)
        if [[ $text =~ $is_command ]]; then command_runs "$place" "$text" inline; fi
        if [[ $text =~ ^record:\  ]]; then
            { header "$text"; printf '  drafter: [{kind: ngram}]\n'; } >experiments/page.yaml
            fails "$place" "speclab run experiments/page.yaml --dry-run"
        fi
        option_exists "$place" "$text"
        if [[ $text =~ ^[a-z_]+(/[A-Za-z0-9_.-]+)+\.(c|cpp|h|cu|py|sh|sql|md|yaml|jsonl?|txt|cmake) && $text != build/* && $text != *NAME* ]]; then
            [ -e "$source/${BASH_REMATCH[0]}" ] || fault "$place: $text: expected a file"
        elif [[ $text =~ ^(test|write|make)_[a-z0-9_]+(\.(c|py))?$ ]]; then
            [ -n "$(find "$source/tests" -name "${text%.*}.*" -print -quit)" ] || fault "$place: $text: expected a file in tests"
        fi
        ;;
    '' | sh)
        while IFS= read -r part; do
            place=$page:$line line=$((line + 1)) part=${part#"${part%%[! ]*}"}
            while [[ $part = *\\ ]] && IFS= read -r more; do line=$((line + 1)) part=${part%\\}${more#"${more%%[! ]*}"}; done
            if [[ "$part " =~ $is_command ]]; then
                command_runs "$place" "$part" block
            elif [ "$language" = sh ] && [[ $part != '' && $part != '#'* ]]; then
                fault "$place: $part: expected a command that this test knows"
            fi
        done <<<"$text"
        ;;
    yaml)
        commands=$((commands + 1))
        if [[ $text = name:* || $text = *$'\n'name:* ]]; then printf '%s' "$text"; else header ''; printf '%s' "$text"; fi >experiments/page.yaml
        # "# NAME.yaml": the page's commands use this file.
        name=experiments/page.yaml
        [[ ! $text =~ ^#\ ([a-z]+\.yaml)$'\n' ]] || { name=${BASH_REMATCH[1]}; mv experiments/page.yaml "$name"; }
        fails "$place" "speclab run $name --dry-run"
        ;;
    sql)
        commands=$((commands + 1))
        printf '%s' "$text" >page.sql
        entry_of "${text%%$'\n'*}"
        database=demo.db         # unless its first line names another
        [[ $text != '-- '*.db$'\n'* ]] || { database=${text%%$'\n'*} && database=${database#-- }; }
        if [ -n "$entry" ]; then command_runs "$place" "$entry" block; else fails "$place" "sqlite3 -bail -box $database < page.sql"; fi
        ;;
    c)
        commands=$((commands + 1))
        printf '%s' "$text" >page.c
        cc -std=c11 -D_GNU_SOURCE -fsyntax-only -I"$source" -I"$source/engine" page.c || fault "$place: expected C that compiles"
        ;;
    python)
        commands=$((commands + 1))
        printf '%s' "$text" >page.py
        [[ ! $text =~ ^#\ ([a-z]+\.py)$'\n' ]] || cp page.py "${BASH_REMATCH[1]}" # the page's commands use it
        fails "$place" "PYTHONPATH=stand-ins:$source/python $started/bin/python -B page.py && echo done"
        ;;
    text) ;;
    *) fault "$place: expected a block of sh, yaml, sql, c, python or text, found $language" ;;
    esac
done < <(examples)

# Links: their files and headings.
for page in "${pages[@]}"; do
    while read -r link; do
        to=$source/$page
        [[ $link = '#'* ]] || to=$(dirname "$to")/${link%%#*}
        [ -e "$to" ] || { fault "$page: $link: expected a file"; continue; }
        [[ $link != *'#'* ]] || sed -n 's/^##* //p' "$to" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-' | grep -qx -- "${link#*#}" ||
            fault "$page: $link: expected a heading"
    done < <(grep -oE '\]\([^)]+\)' "$source/$page" | sed 's/^](//; s/)$//' | grep -v '^https\?:')
done

for listed in "${!instead[@]}"; do
    [ -n "${seen[$listed]:-}" ] || fault "tests/cli/documents.txt: $listed: expected on a page, found on none"
done
[ $commands -ge 90 ] || fault "expected 90 examples and more, found $commands"
echo "$commands examples, ${#instead[@]} of them in another form"
exit $bad
