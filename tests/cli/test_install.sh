#!/usr/bin/env bash
# test_install.sh - the program and the library as installed: `cmake --install` into a folder, examples/decode.c compiled against that by
# pkg-config alone, with the shared library and with the archive, and its text compared with `speclab generate`'s; words of the Python package and
# a plugin in Python from there; the installed headers alone, and plugins in C and C++ compiled with them. test_install.sh SOURCE BUILD CFLAGS...
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
"$build/write_small_model" "$to/small.gguf"
"$to/usr/bin/speclab" generate "$to/small.gguf" --drafter ngram:tokens=3 'red green red green' >"$to/program" 2>/dev/null
export PKG_CONFIG_PATH=$pc LD_LIBRARY_PATH=${pc%/*}
for link in "$(pkg-config --libs speclab)" "${pc%/*}/libspeclab.a $(pkg-config --libs --static speclab | sed 's/-lspeclab//')"; do
    # shellcheck disable=SC2046,SC2086 # words
    cc -std=c11 -Wall -Wextra -Werror "$source/examples/decode.c" $(pkg-config --cflags speclab) $link "$@" -o "$to/decode"
    "$to/decode" "$to/small.gguf" ngram:tokens=3 'red green red green' >"$to/example"
    [ "$(head -n -1 "$to/example")" = "$(cat "$to/program")" ] || { echo "expected the text of speclab generate"; exit 1; }
    grep -qE '^[0-9]+ steps, [0-9]+ draft tokens, [0-9]+ accepted$' "$to/example" || { tail -n 1 "$to/example"; exit 1; }
done
[ "$(nm -D --defined-only "${pc%/*}/libspeclab.so" | grep -cv ' speclab_')" = 0 ] || { echo "expected no symbol but speclab_*"; exit 1; }

# Words of the Python package, and a plugin in Python, of an installation that was moved, without the checkout.
cat >"$to/last.py" <<'END'
import speclab

class Last(speclab.Drafter):
    "the last token again"
    def propose(self, request, draft):
        draft.add(request.tokens[-1])
END
(cd "$to/moved" && unset SPECLAB_PROGRAM SPECLAB_PYTHON SPECLAB_TOOL &&
    opt/speclab/bin/speclab inspect "$to/small.gguf" | grep '^shape  *3 layers' >/dev/null &&
    ! opt/speclab/bin/speclab report --db "$to/none.db" 2>"$to/error") || { echo "expected words of the package to be found"; exit 1; }
[ "$(cat "$to/error")" = "speclab report: $to/none.db: no such database; \`speclab run FILE.yaml --db $to/none.db\` creates it" ] || { cat "$to/error"; exit 1; }
python=$("$source/run" python -c 'import sys; print(sys.executable)' 2>/dev/null || true)
if [ -n "$python" ] && ! ldd "$build/libspeclab_program.so" | grep 'lib[at]san' >/dev/null; then
    (cd "$to/moved" && unset SPECLAB_PROGRAM SPECLAB_TOOL &&
        SPECLAB_PYTHON=$python opt/speclab/bin/speclab generate "$to/small.gguf" --plugin "$to/last.py" --drafter last 'red green red green' 2>/dev/null) >"$to/drafted"
    cmp "$to/drafted" "$to/program"
fi

# The installed headers by themselves: speclab.h, and what a plugin includes, in C and in C++.
warnings=(-Wall -Wextra -pedantic -Werror)
for how in "cc -std=c99|speclab.h" "cc -std=c99|engine/plugin.h" "c++ -std=c++11|speclab.h" "c++ -std=c++17|engine/plugin.h"; do
    case $how in cc*) unit=$to/unit.c ;; *) unit=$to/unit.cpp ;; esac
    echo "#include \"${how#*|}\"" >"$unit"
    # shellcheck disable=SC2086 # words
    ${how%%|*} "${warnings[@]}" -fsyntax-only -I "$to/usr/include" -I "$to/usr/include/speclab" "$unit" || { echo "$how"; exit 1; }
done

# A drafter in C++ and one in C, compiled with the installed headers.
cat >"$to/again.cpp" <<'END'
#include <vector>
#include "engine/plugin.h"

struct again {
    drafter of; // first
    std::vector<int32_t> last;
};

static drafter *again_create(const drafter_env *env, const void *, error *)
{
    again *d = new again();
    d->of.nodes = 3;
    d->last.resize(env->slots);
    return &d->of;
}

static bool again_propose(drafter *d, request *r, int n, error *)
{
    std::vector<int32_t> &last = reinterpret_cast<again *>(d)->last;
    for (int i = 0; i < n; i++) {
        last[r[i].slot] = r[i].token[r[i].n - 1];
        for (int node = 0, depth = 0; depth < 2 && depth < r[i].depth && node >= 0; depth++)
            node = draft_add(r[i].draft, node, last[r[i].slot], DETERMINISTIC);
    }
    return true;
}

static void again_destroy(drafter *d)
{
    delete reinterpret_cast<again *>(d);
}

SPECLAB_PLUGIN(err)
{
    drafter_type type = {};
    type.name = "again";
    type.summary = "the last token again";
    type.create = again_create;
    type.propose = again_propose;
    type.destroy = again_destroy;
    return speclab_register_drafter(&type, err);
}
END
c++ -std=c++17 "${warnings[@]}" -Wno-missing-field-initializers -shared -fPIC -I "$to/usr/include/speclab" "$to/again.cpp" "$@" -o "$to/again.so"
cc -std=c11 "${warnings[@]}" -shared -fPIC -I "$to/usr/include/speclab" "$source/tests/plugins/examples/repeat.c" "$@" -o "$to/repeat.so"
for drafter in again repeat; do
    "$to/usr/bin/speclab" generate "$to/small.gguf" --plugin "$to/$drafter.so" --drafter "$drafter" 'red green red green' >"$to/drafted" 2>/dev/null
    cmp "$to/drafted" "$to/program"
done

# Bad input is one sentence and status 1.
for words in "$to/none.gguf ngram x" "$to/small.gguf nonsense x" "$to/small.gguf ngram:tokens=0 x" "only two"; do
    # shellcheck disable=SC2086 # words
    if "$to/decode" $words >/dev/null 2>"$to/error"; then
        echo "expected $words to fail"
        exit 1
    fi
    [ "$(wc -l <"$to/error")" = 1 ] || { echo "expected one sentence for $words"; cat "$to/error"; exit 1; }
done
