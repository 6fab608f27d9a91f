#!/usr/bin/env bash
# What a reader relies on and no compiler checks: formatting, one door for each dependency, and which folder may
# include what (docs/architecture.md). Prints every offence; exit 1 if there is one.
set -u
cd "$(dirname "$0")/.." || exit 1
bad=0
offence() { printf '%s\n' "$*"; bad=1; }

# One door for each dependency.
while read -r header door; do
    for file in $(grep -lE "#include <$header>" -r --include='*.[ch]' core sampling kernels models drafters verifier decode results experiments); do
        [ "$file" = "$door" ] || offence "$file includes <$header>; only $door does"
    done
done <<'DOORS'
sqlite3.h results/store.c
yaml.h experiments/yaml.c
jansson.h core/json.c
Random123/philox.h sampling/rng.c
pcre2.h models/pattern.c
utf8proc.h models/nfc.c
xxhash.h core/digest.c
DOORS

# Arrows go down only.
may() {                          # may FOLDER FOLDERS...: what it may include of ours
    local folder=$1 file line included
    shift
    for file in "$folder"/*.[ch] "$folder"/*/*.[ch]; do
        [ -e "$file" ] || continue
        while read -r line; do
            included=${line#*\"}
            included=${included%%/*}
            case " $folder $* " in
            *" $included "*) ;;
            *) offence "$file: $line ($folder may include: $*)" ;;
            esac
        done < <(grep -hE '^#include "[a-z]+/' "$file")
    done
}
may core
may sampling core
may kernels core
may models core kernels
may drafters core sampling kernels models
may verifier core sampling kernels models
may decode core sampling drafters verifier
may exact core sampling drafters verifier decode models kernels
may results core

# Rules and drafters toss no coins of their own.
grep -nE '\b(rand|random|drand48|srand)\(' -r --include='*.[ch]' core sampling kernels models drafters verifier decode && offence "chance has one door: sampling/rng.h"

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
