#!/usr/bin/env bash
# test_recipe.sh - the commands of CONTRIBUTING.md that compile in files outside the tree, word for word, in a copy of the tree with nothing
# built. A small model has the name of the model that they decode with. test_recipe.sh SOURCE WRITE_SMALL_MODEL
set -euo pipefail
source=$1 write_model=$2
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
tar -C "$source" --exclude=./build --exclude=./.git -cf - . | tar -C "$to" -xf -
cd "$to"
export XDG_CACHE_HOME=$to/cache
mkdir -p cache/speclab/models
"$write_model" cache/speclab/models/smollm2-135m-instruct.gguf

sed -n '/^```sh$/,/^```$/{/^```/!p;}' CONTRIBUTING.md >recipe
grep -q SPECLAB_EXTENSIONS recipe
bash -euxo pipefail recipe >out 2>&1 || { tail -n 40 out; exit 1; }
for line in '^  repeat: an example' '^  linear: an example' '^  prompt_lookup: an example' '^  first: an example' '^  epsilon_cutoff: an example' '^  first  .* exact$'; do
    grep -q "$line" out || { echo "expected a line $line"; cat out; exit 1; }
done

generate="build/release/speclab generate smollm2-135m-instruct"
[ "$($generate x)" = "$($generate --drafter repeat:period=2 --rule first x)" ] || { echo "expected the text of none"; exit 1; }
build/release/speclab --version | grep -q +extensions || { build/release/speclab --version; exit 1; }

# A name of the tree is refused, whether it is the file's or in the file.
with() { cmake --preset release -G Ninja -DSPECLAB_EXTENSIONS="$to/more" >out 2>&1; }
refused() { grep -q "$1" out || { echo "expected $1"; tail -n 20 out; exit 1; }; }
mkdir -p more/drafters
cp drafters/ngram.c more/drafters/ngram.c
! with || { echo "expected an error at configuration"; exit 1; }
tr -s '\n ' ' ' <out >line && mv line out
refused 'more/drafters/ngram.c: expected a name that no drafter has, found "ngram", which is .*/drafters/ngram.c'
mv more/drafters/ngram.c more/drafters/my_ngram.c
sed -i 's/ngram_drafter = {/my_ngram_drafter = {/' more/drafters/my_ngram.c
with && cmake --build build/release --target speclab >out 2>&1 || { tail -n 20 out; exit 1; }
! build/release/speclab list >out 2>&1 || { echo "expected an error at the start"; exit 1; }
refused '^speclab: my_ngram_drafter: name: expected "my_ngram", as in the list of drafters, found "ngram"$'
