#!/usr/bin/env bash
# test_folder_names.sh - a clone builds, and is installed, in a folder with any name: every custom command of CMakeLists.txt and cmake/ runs, of a copy of the
# tree in a folder whose name a shell would expand (CMake takes no names with ", \, ; or #). To be quick, C files are compiled as empty ones. test_folder_names.sh SOURCE
set -euo pipefail
source=$1
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
# shellcheck disable=SC2016
copy=$to/'it'\''s $HOME `touch run` & (é) 1%'
mkdir -p "$copy"
tar -C "$source" --exclude=./build --exclude=./.git -cf - . | (cd "$copy" && tar -xf -)

cat >"$to/launcher" <<'SH'
#!/bin/sh
# COMPILER .. -MF DEPFILE .. -o OBJECT -c FILE
compiler=$1 text=
while [ $# -gt 1 ]; do
    case $1 in -o) object=$2 ;; -MF) : >"$2" ;; esac
    shift
done
case $1 in */commands/main.c) text='int main(void) { return 0; }' ;; esac
echo "$text" | "$compiler" -x c -c - -o "$object"
SH
chmod +x "$to/launcher"
cd "$copy"
{ cmake -S . -B build -G Ninja -DSPECLAB_CUDA=off -DSPECLAB_EVERY_ISA=OFF -DCMAKE_C_COMPILER_LAUNCHER="$to/launcher" &&
  cmake --build build --target speclab; } >"$to/log" 2>&1 || { tail -n 20 "$to/log"; exit 1; }
[ ! -e "$(find "$copy" -name run -newer "$to/launcher")" ] || { echo "expected no command in the folder's name to be run"; exit 1; }

# What they have written: texts with the bytes of their files, a revision, an archive.
python3 - "$copy" <<'PYTHON' || exit 1
import pathlib, re, sys
here = pathlib.Path(sys.argv[1])
carried = list((here / "build/carried").glob("*.c"))
assert len(carried) > 10, carried
for c in carried:
    found = bytes(int(h, 16) for h in re.findall(r"0x(..)", c.read_text()))
    files = [f for folder in ("results", "models", "commands") for f in (here / folder).rglob(c.name[:-2])]
    assert len(files) == 1 and files[0].read_bytes() == found, c
assert '#define SPECLAB_RELEASE "' in (here / "build/revision/revision.h").read_text()
PYTHON

# All that is installed was built with the program, as by `./run demo`; the names of folders are no hindrance here.
cmake --install build --prefix "$to/an installation" >"$to/log" 2>&1 || { tail -n 20 "$to/log"; exit 1; }
ar t "$(find "$to/an installation" -name libspeclab.a)" | grep -qx libspeclab.o
