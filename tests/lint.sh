#!/usr/bin/env bash
# What a reader relies on and no compiler checks: formatting, one door for each dependency, and which folder may
# include what (docs/architecture.md). Prints every offence; exit 1 if there is one.
set -u
cd "$(dirname "$0")/.." || exit 1
bad=0
offence() { printf '%s\n' "$*"; bad=1; }

folders='core sampling kernels formats tokenizers models drafters verifier decode exact results engine experiments commands'

# One door for each dependency.
while read -r header door; do
    for file in $(grep -lE "#include <$header>" -r --include="*.[ch]" $folders); do
        [ "$file" = "$door" ] || offence "$file includes <$header>; only $door does"
    done
done <<'DOORS'
sqlite3.h results/store.c
yaml.h experiments/yaml.c
jansson.h core/json.c
Random123/philox.h sampling/rng.c
pcre2.h tokenizers/pattern.c
utf8proc.h tokenizers/nfc.c
xxhash.h core/digest.c
DOORS

# Arrows go down only.
may() {                          # may FOLDER FOLDERS...: what it and its subfolders may include of ours
    local folder=$1 file line included
    shift
    while read -r file; do
        while read -r line; do
            included=${line#*\"}
            included=${included%%/*}
            case " $folder $* " in
            *" $included "*) ;;
            *) offence "$file: $line ($folder may include: $*)" ;;
            esac
        done < <(grep -hE '^#include "[a-z_]+/' "$file")
    done < <(git ls-files "$folder/*.c" "$folder/*.h" "$folder/*.cu")
}
may core
may sampling core
may kernels core
may formats core
may tokenizers core formats
may models core kernels formats
may drafters core sampling kernels tokenizers models
may verifier/rules core sampling verifier
may verifier core sampling kernels models
may decode core sampling drafters verifier
may exact core sampling verifier
may results core
may engine core sampling kernels tokenizers models drafters verifier decode
may experiments core sampling kernels formats tokenizers models drafters verifier decode exact results engine
may commands core sampling kernels formats tokenizers models drafters verifier decode exact results engine experiments

# A folder that a person can look over.
while read -r n folder; do
    [ "$n" -le 40 ] || [ "$folder" = tests/cases ] || offence "$folder has $n files; 40 is the most"
done < <(git ls-files | sed -n 's|/[^/]*$||p' | sort | uniq -c)

# Rules and drafters toss no coins of their own.
grep -nE '\b(rand|random|drand48|srand)\(' -r --include='*.[ch]' ${folders%% results*} && offence "chance has one door: sampling/rng.h"

# Versions differ in taste: Debian 12's is the one that counts.
case $(clang-format --version 2>/dev/null) in
*"version 14."*)
    n=$(git ls-files '*.c' '*.h' '*.cu' '*.cpp' | xargs clang-format --dry-run 2>&1 | grep -c 'warning:')
    [ "$n" = 0 ] || offence "clang-format would change $n places"
    ;;
*) echo "lint: formatting was not looked at: clang-format 14 is not here" ;;
esac
[ $bad = 0 ] && echo "lint: no offence"
exit $bad
