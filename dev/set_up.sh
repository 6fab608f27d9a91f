# shellcheck shell=bash
# set_up.sh - what `run` needs for every word: Debian packages, builds, the Python of the tools. `run` reads it, and the files beside it.

# ---- packages

needed=(gcc g++ libc6-dev cmake ninja-build pkg-config git ca-certificates libjansson-dev libyaml-dev libsqlite3-dev
        libpcre2-dev libutf8proc-dev libxxhash-dev libboost-dev zlib1g-dev librandom123-dev libcmocka-dev sqlite3 python3-jinja2)

install_packages() {             # install_packages NAME...: installs the missing ones
    local missing=() p installed
    installed=$(dpkg-query -W -f '${Package} ${Status} \n' "$@" 2>/dev/null || true)
    for p in "$@"; do
        grep -q "^$p .*ok installed" <<<"$installed" || missing+=("$p")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    local root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "missing packages, and no sudo to install them: ${missing[*]}"
        root=(sudo)
    fi
    say "installing Debian packages: ${missing[*]}"
    local log
    log=$(mktemp)
    # Lists may be missing or older than the archive: fetch them first. Print apt's output on failure only. Tests that install at the same time
    # wait for each other, as apt does not wait for its lock.
    mkdir -p "$here/build"
    if ! { flock 9 && "${root[@]}" apt-get update -q && "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
           apt-get install -y -q --no-install-recommends "${missing[@]}" 9>&-; } >"$log" 2>&1 9>"$here/build/packages.lock"; then
        cat "$log" >&2
        rm -f "$log"
        die "apt-get could not install: ${missing[*]}"
    fi
    rm -f "$log"
}

set_up() {
    command -v dpkg-query >/dev/null ||
        { say "not Debian or Ubuntu; continuing with installed packages (required: ${needed[*]})"; return 0; }
    install_packages "${needed[@]}"
}

# ---- build

# The program alone has kernels for GPUs where there is a GPU; a build of everything, and so the tests, wherever nvcc is.
configure() {                    # configure CONFIGURATION local|auto: if it never was, or was with local and auto is needed
    local to=$here/build/$1 cuda=()
    [ "$1" != release ] || cuda=(-DSPECLAB_CUDA="$2" ${SPECLAB_CUDA_ARCHITECTURES:+-DSPECLAB_CUDA_ARCHITECTURES="$SPECLAB_CUDA_ARCHITECTURES"})
    [ -e "$to/build.ninja" ] && ! { [ "$2" = auto ] && grep -q '^SPECLAB_CUDA:STRING=local$' "$to/CMakeCache.txt"; } ||
        cmake -S "$here" --preset "$1" -G Ninja ${cuda[0]+"${cuda[@]}"}
}

build() {                        # build CONFIGURATION [TARGET...]: everything, or these
    local configuration=$1 log cuda=auto
    shift
    [ $# = 0 ] || cuda=local
    log=$(mktemp)
    if ! { configure "$configuration" $cuda && cmake --build "$here/build/$configuration" ${1:+--target "$@"}; } >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        die "the $configuration build failed"
    fi
    rm -f "$log"
}

program() {
    "$here/build/release/speclab" "$@"
}

# ---- tools in Python

words=$here/python/speclab/words
# A module is its word's whole; or, with lines "# with --a --b", "# without --c" or "# with --a without --c", the word with one of the options
# `with` and none of the options `without` of one of these lines.
lines_of() { sed -n "s/^# \($2\)/\1/p" "$words/${1//-/_}.py"; } # lines_of WORD BEGINNING: a regular expression
has_option() {                   # has_option "OPTION .." ARGUMENT...: whether one is before --
    local option given=" ${*:2} "
    for option in $1; do [[ ! "${given%% -- *} " =~ \ $option[=\ ] ]] || return 0; done
    return 1
}
is_tool() {                      # is_tool WORD ARGUMENT...
    local lines line with without
    [[ $1 =~ ^[a-z-]+$ ]] && [ -e "$words/${1//-/_}.py" ] || return 1
    lines=$(lines_of "$1" '\(with\|without\) -')
    [ -n "$lines" ] || return 0
    while read -r line; do
        with=${line%%without *} without=
        [[ $line != *without* ]] || without=${line#*without }
        ! { [ -z "$with" ] || has_option "${with#with }" "${@:2}"; } || has_option "$without" "${@:2}" || return 0
    done <<<"$lines"
    return 1
}
has_plugin() { [[ " $* " =~ \ --plugin[\ =][^\ ]*\.py\  ]]; } # one in Python, which needs the engine in its process

# Prints SPECLAB_PYTHON, or the python of a virtual environment in the cache, of requirements/tools.txt, made when a tool first needs it.
python_environment() {
    local list=$here/requirements/tools.txt to log
    [ -z "${SPECLAB_PYTHON:-}" ] || { command -v "$SPECLAB_PYTHON" || die "SPECLAB_PYTHON: expected a python, found $SPECLAB_PYTHON"; return; }
    to=${XDG_CACHE_HOME:-$HOME/.cache}/speclab/python-$(sha256sum "$list" | cut -c 1-12)
    if ! [ -e "$to/complete" ]; then
        ! command -v dpkg-query >/dev/null || python3 -c 'import venv, ensurepip' 2>/dev/null || install_packages python3 python3-venv
        mkdir -p "${to%/*}" 2>/dev/null && [ -w "${to%/*}" ] || die "${to%/*}: expected a folder that can be written, for the tools' Python packages"
        exec 9>"$to.lock"
        ! command -v flock >/dev/null || flock 9   # another run makes it
        if ! [ -e "$to/complete" ]; then
            say "installing the Python packages of requirements/tools.txt, once, into $to"
            log=$(mktemp)
            rm -rf "$to"
            { python3 -m venv "$to" && "$to/bin/python" -m pip install -q --disable-pip-version-check --no-deps -r "$list"; } >"$log" 2>&1 ||
                { tail -n 3 "$log" >&2; rm -rf "$log" "$to"; die "cannot install the Python packages: is this machine offline?"; }
            rm -f "$log" && touch "$to/complete"
        fi
        exec 9>&-
    fi
    echo "$to/bin/python"
}

tool() {                         # tool WORD ARGUMENT...
    local python=python3
    # A file of Python or parquet may need pandas or pyarrow, as options do that a module's line "# packages with --a --b" names.
    if grep -qis 'standard library alone' "$words/${1//-/_}.py" && ! [[ " $* " =~ \.(py|parquet)\  ]] &&
       ! has_option "$(lines_of "$1" 'packages with ')" "${@:2}"; then
        ! command -v dpkg-query >/dev/null || install_packages python3
    else
        python=$(python_environment) || exit 1
    fi
    PYTHONPATH=$here/python${PYTHONPATH:+:$PYTHONPATH} exec "$python" -P -B -m speclab "$@" # -P: a file pandas.py in this folder is not imported
}
