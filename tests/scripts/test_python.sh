#!/usr/bin/env bash
# test_python.sh SOURCE BUILD [fast|slow] - the tests of python/speclab, and ruff. 77: its packages cannot be had here.
set -euo pipefail
source=$1 build=$2 kind=${3:-fast}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$source/run" python -c '' 2>"$log" || { cat "$log" >&2; exit 77; }
export SPECLAB_PROGRAM=$build/speclab SPECLAB_BUILD=$build
cd "$source/python"
. "$source/tests/scripts/sanitizers.sh"
tests() { with_sanitizers "$("$source/run" python -c 'import sys; print(sys.executable)')" -B -m pytest "$@"; }
if [ "$kind" = fast ]; then
    "$source/run" python -m ruff check --no-cache .
    tests -m 'not slow'
else
    tests -m slow || [ $? = 5 ]
fi
