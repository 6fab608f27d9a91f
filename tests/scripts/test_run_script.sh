#!/usr/bin/env bash
# test_run_script.sh - ./run where a user's surroundings are unusual: the name of the folder, CDPATH, a link to it, no HOME, a cache or a
# folder for temporary files that cannot be written, no network. Programs that it calls are stubs. test_run_script.sh SOURCE
set -euo pipefail
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
bad=0
wrong() { echo "FAILED: $*"; bad=1; }
# shellcheck disable=SC2016
copy=$to/'it'\''s $HOME `touch run` * é' bin=$to/bin
mkdir -p "$copy/build/release" "$copy/experiments" "$copy/tests" "$copy/python/speclab" "$bin"
cp -r "$1/python/speclab/words" "$copy/python/speclab"
cp -r "$1/run" "$1/dev" "$copy"
cp -r "$1/requirements" "$copy"
# shellcheck disable=SC2016
printf '#!/bin/sh\nshift 2\nfor p; do echo "$p install ok installed "; done\n' >"$bin/dpkg-query"
printf '#!/bin/sh\n' | tee "$bin/cmake" >"$copy/build/release/write_small_model"
# shellcheck disable=SC2016
printf '#!/bin/sh\ncase " $* " in *" -m speclab "*) exit 0 ;; esac\necho "pip $*" >>"%s/calls"\necho "ERROR: no network" >&2\nexit 1\n' "$to" >"$bin/python3"
# shellcheck disable=SC2016
printf '#!/bin/sh\nprintf "speclab"; printf " [%%s]" "$@"; echo\n' >"$copy/build/release/speclab"
chmod +x "$bin"/* "$copy"/build/release/*
export PATH=$bin:$PATH XDG_CACHE_HOME=$to/cache
unset TMPDIR

gives() {                        # gives STATUS WORDS COMMAND...: its status, and words that it prints
    local expected=$1 words=$2 status=0
    shift 2
    "$@" >"$to/log" 2>&1 </dev/null || status=$?
    [ $status = "$expected" ] && grep -qF "$words" "$to/log" && ! grep -q 'line [0-9]*:' "$to/log" ||
        wrong "${*/$to/}: expected status $expected and \"$words\", found $status and: $(cat "$to/log")"
}

cd "$copy"
gives 0 'speclab [replay] [a  b] []' ./run replay 'a  b' ''
gives 0 '  demo     ' ./run --help
mkdir -p "$to/other/${copy##*/}"
cd "$to"
gives 0 'speclab [replay]' env CDPATH="$to/other" "${copy##*/}/run" replay
ln -s "$copy/run" "$bin/spec"
gives 0 'speclab [replay]' spec replay
gives 0 'speclab [replay]' env -u HOME -u XDG_CACHE_HOME "$copy/run" replay
gives 1 'unknown model "x"' env -u HOME -u XDG_CACHE_HOME "$copy/run" model x
gives 1 "run: /dev/null/speclab/models: expected a folder that can be written" env XDG_CACHE_HOME=/dev/null "$copy/run" model smollm2-135m-instruct
[ ! -e "$to/calls" ] || wrong "expected no download that cannot be stored, found $(cat "$to/calls")"
mkdir "$to/bare"
printf '#!/bin/sh\n' >"$to/bare/dpkg-query" # nothing is installed
printf '#!/bin/sh\necho installs >>"%s/installs"\n' "$to" | tee "$to/bare/apt-get" >"$to/bare/sudo"
chmod +x "$to"/bare/*
gives 1 'no network' env PATH="$to/bare:$PATH" "$copy/run" gpu benhc
[ ! -e "$to/installs" ] || wrong "a wrong word of gpu installs packages"
gives 1 "$to/none" env TMPDIR="$to/none" "$copy/run" replay
gives 1 "$to/none" env TMPDIR="$to/none" "$copy/run" model smollm2-135m-instruct
gives 1 'is this machine offline?' "$copy/run" model smollm2-135m-instruct
gives 0 "speclab [run] [$copy/experiments/smoke.yaml] [--db] [demo.db]" "$copy/run" demo
exit $bad
