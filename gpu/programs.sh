# programs.sh - the machine, and the programs that phases run: those of gpu/carry if they are of these sources and run here, else
# a build for this GPU. $built is their folder. To be sourced after phases.sh.
# shellcheck shell=bash

built=$here/build/gpu-programs
export built

# ---- the machine

# Compute capability of the first GPU, "90" for an H100; empty: no GPU.
capability() {
    command -v nvidia-smi >/dev/null || return 0
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d ' .' | grep -E '^[0-9]+$' || true
}

needs_gpu() {
    export PATH=$PATH:/usr/local/cuda/bin
    capability=$(capability)
    export capability
    [ -n "$capability" ] || { say "expected an NVIDIA GPU known to nvidia-smi, found none: nothing was run"; exit 77; }
}

machine() {
    nvidia-smi --query-gpu=name,memory.total,memory.free,driver_version,compute_cap,clocks.max.sm,clocks.max.mem --format=csv
    if command -v nvcc >/dev/null; then nvcc --version | tail -n 2; else echo "no nvcc"; fi
    uname -sr
    nproc
}

# ---- what was carried here

# A hash of what the programs are built from. No git: a copied working tree may have none.
sources_hash() {
    (cd "$here" && find . \( -path ./build -o -path ./shared -o -name '.*' ! -name . \) -prune -o -type f \( -name '*.[ch]' -o -name '*.cu' \
        -o -name '*.cpp' -o -name '*.sql' -o -name '*.cmake' -o -name CMakeLists.txt -o -name CMakePresets.json \) -print |
        LC_ALL=C sort | tr '\n' '\0' | xargs -0 sha256sum | sha256sum | cut -c 1-16)
}

# Unpacks the packages of gpu/carry into build/carried, without changing the system, and sets up a pkg-config that finds them.
unpack_packages() {
    local root=$here/build/carried deb
    ls "$here"/build/carry/*.deb >/dev/null 2>&1 || return 0
    if [ ! -e "$root/complete" ]; then
        rm -rf "$root"
        mkdir -p "$root"
        for deb in "$here"/build/carry/*.deb; do dpkg -x "$deb" "$root" || return 1; done
        cat >"$root/pkg-config" <<WRAPPER
#!/bin/sh
LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 \\
PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 PKG_CONFIG_LIBDIR=$root/usr/lib/x86_64-linux-gnu/pkgconfig \\
exec $root/usr/bin/pkgconf "\$@"
WRAPPER
        chmod +x "$root/pkg-config"
        touch "$root/complete"
    fi
    export PKG_CONFIG=$root/pkg-config CMAKE_PREFIX_PATH=$root/usr
}

# Joins the two parts of ./run gpu carry model; 77: they are missing.
carried_model() {                # carried_model TO
    [ -e "$here/build/carry-model-1/part" ] && [ -e "$here/build/carry-model-2/part" ] ||
        { echo "SmolLM2 is missing (./run gpu carry model)"; return 77; }
    cat "$here"/build/carry-model-[12]/part >"$1" || { echo "cannot write SmolLM2 to $1"; return 1; }
    [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$(cat "$here/build/carry/model.sha256")" ] ||
        { echo "SmolLM2: expected the SHA-256 of build/carry/model.sha256, found another"; return 1; }
}

# ---- programs

# Unpacks the carried programs. Status 1: there are none, or they do not fit, as printed.
carried_programs() {
    local packed=$here/build/carry/programs.tar.xz hash
    [ -e "$packed" ] || { echo "build/carry has no programs (./run gpu carry)"; return 1; }
    hash=$(cat "$here/build/carry/programs.hash")
    [ "$hash" = "$(sources_hash)" ] || { echo "the programs in build/carry are of other sources"; return 1; }
    [ "$capability" -ge 80 ] || { echo "the programs in build/carry are for compute capability 8.0 or later"; return 1; }
    if [ "$(cat "$built/carried" 2>/dev/null)" != "$hash" ]; then
        rm -rf "$built"
        mkdir -p "$built"
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$packed" "$built" 2>"$built/log" ||
            { cat "$built/log"; return 1; }
        echo "$hash" >"$built/carried"
    fi
    "$built/speclab" --version
}

# build/gpu: a release build, with kernels for this GPU only.
build_here() {                   # build_here TARGET...
    unpack_packages || { echo "cannot unpack the packages in build/carry"; return 1; }
    cmake -S "$here" --preset release -B "$here/build/gpu" -G Ninja -DSPECLAB_CUDA=on -DSPECLAB_EMULATED=OFF \
        "-DSPECLAB_CUDA_ARCHITECTURES=$capability" &&
        cmake --build "$here/build/gpu" --target "$@" &&
        nvcc -O3 -std=c++17 "-arch=sm_$capability" -o "$here/build/gpu/probe" "$here/gpu/probe.cu" &&
        rm -rf "$built" &&
        ln -s gpu "$built"
}

programs() {                     # programs TARGET...
    ! carried_programs || return 0
    build_here "$@"
}
