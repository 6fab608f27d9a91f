#!/usr/bin/env bash
# test_recipe.sh - the commands of CONTRIBUTING.md that make plugins and use them, word for word, with headers as installed and as in the tree. A small
# model has the name of the model that they decode with. test_recipe.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
cd "$to"
export XDG_CACHE_HOME=$to/cache
mkdir -p cache/speclab/models build
ln -s "$build" build/release
ln -s "$source"/{core,sampling,kernels,models,drafters,verifier,engine,tests} .
"$build/write_small_model" cache/speclab/models/smollm2-135m-instruct.gguf >/dev/null

sed -n '/^```sh$/,/^```$/{/^```/!p;}' "$source/CONTRIBUTING.md" >recipe
grep -q SPECLAB_PLUGIN "$source/CONTRIBUTING.md"
bash -euxo pipefail recipe >out 2>&1 || { tail -n 40 out; exit 1; }
for line in '^  repeat: an example' '^  first: an example' '^  first  .* exact$'; do
    grep -q "$line" out || { echo "expected a line $line"; cat out; exit 1; }
done
generate="$build/speclab generate smollm2-135m-instruct"
[ "$($generate x)" = "$($generate --plugin repeat.so --drafter repeat:period=2 x)" ] || { echo "expected the text of none"; exit 1; }

# The headers of an installation suffice.
cmake --install "$build" --prefix "$to/usr" >/dev/null
cc -shared -fPIC -O2 -I usr/include/speclab tests/plugins/examples/linear.c -o linear.so
"$build/speclab" list --plugin=linear.so >listed # not a pipe: grep -q ends before the list, whose command then fails
grep -q '^  linear: an example' listed || { echo "expected linear to be listed"; exit 1; }

# A name that is there is refused, and a plugin of other headers.
refused() { { "$build/speclab" list --plugin "$1" 2>&1 >/dev/null || true; } | grep -q "$2" || { echo "expected $2"; exit 1; }; }
sed 's/"repeat"/"ngram"/' tests/plugins/examples/repeat.c >ngram.c
cc -shared -fPIC -I . ngram.c -o ngram.so
refused ngram.so '^speclab: ngram.so: drafter ngram: expected a name that no drafter has'
mkdir -p old/core
sed 's/char text\[1024\]/char text[512]/' core/error.h >old/core/error.h
cc -shared -fPIC -I old -I . tests/plugins/examples/repeat.c -o repeat.so
refused repeat.so '^speclab: repeat.so: was compiled with headers of another version of speclab'
