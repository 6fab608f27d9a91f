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
python=$("$source/run" python -c 'import sys; print(sys.executable)')
if [ "$kind" = fast ]; then
    "$python" -B -m ruff check --no-cache .
    "$python" -B -m pytest -m 'not slow and not library'
    "${sanitized[@]}" "$python" -B -m pytest -m library
else
    "$python" -B -m pytest -m slow || [ $? = 5 ]
fi
