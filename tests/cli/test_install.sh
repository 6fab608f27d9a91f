#!/usr/bin/env bash
# test_install.sh - the program and the library as installed: `cmake --install` into a folder, examples/decode.c compiled against that by
# pkg-config alone, and its text compared with `speclab generate`'s. test_install.sh SOURCE BUILD CFLAGS...
set -euo pipefail
source=$1 build=$2
shift 2
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
cmake --install "$build" --prefix "$to/usr" >/dev/null
pc=$(dirname "$(find "$to/usr" -name speclab.pc)")
for word in bin/speclab include/speclab.h; do
    [ -e "$to/usr/$word" ] || { echo "expected $word to be installed"; exit 1; }
done
# For a package: files of another prefix, in a folder that is moved later.
DESTDIR=$to/package cmake --install "$build" --prefix /opt/speclab >/dev/null
mv "$to/package" "$to/moved"
for prefix in "$to/usr" "$to/moved/opt/speclab"; do
    library=$(dirname "$(find "$prefix" -name libspeclab.a)")
    for pair in "includedir:$prefix/include" "libdir:$library"; do
        found=$(realpath -m "$(PKG_CONFIG_PATH=$library/pkgconfig pkg-config --variable="${pair%%:*}" speclab)")
        [ "$found" = "${pair#*:}" ] || { echo "${pair%%:*}: expected ${pair#*:}, found $found"; exit 1; }
    done
done
# shellcheck disable=SC2046 # words
cc -std=c11 -Wall -Wextra -Werror "$source/examples/decode.c" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs speclab) "$@" -o "$to/decode"

"$build/write_small_model" "$to/small.gguf"
"$to/decode" "$to/small.gguf" ngram:tokens=3 'red green red green' >"$to/example"
"$to/usr/bin/speclab" generate "$to/small.gguf" --drafter ngram:tokens=3 'red green red green' >"$to/program" 2>/dev/null
[ "$(head -n -1 "$to/example")" = "$(cat "$to/program")" ] || { echo "expected the text of speclab generate"; exit 1; }
grep -qE '^[0-9]+ steps, [0-9]+ draft tokens, [0-9]+ accepted$' "$to/example" || { tail -n 1 "$to/example"; exit 1; }

# Bad input is one sentence and status 1.
for words in "$to/none.gguf ngram x" "$to/small.gguf nonsense x" "$to/small.gguf ngram:tokens=0 x" "only two"; do
    # shellcheck disable=SC2086 # words
    if "$to/decode" $words >/dev/null 2>"$to/error"; then
        echo "expected $words to fail"
        exit 1
    fi
    [ "$(wc -l <"$to/error")" = 1 ] || { echo "expected one sentence for $words"; cat "$to/error"; exit 1; }
done
