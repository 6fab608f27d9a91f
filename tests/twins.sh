#!/usr/bin/env bash
# Checks that the twins which need only Python still write their golden files (docs/testing.md). Exit status 77: no Python.
set -euo pipefail
unset CDPATH
cd "$(dirname "$0")/cases"
command -v python3 >/dev/null || { echo "twins: no python3"; exit 77; }
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
cp races.json stages.json imports.json "$made" # what they ask is read, and their answers are written again
for name in rules races stages imports views; do
    python3 -B "make_$name.py" "$made/$name.json" >/dev/null
done
for file in "$made"/*; do
    cmp "$file" "$(basename "$file")"
done
echo "twins: $(ls "$made" | wc -l) golden files are up to date"
