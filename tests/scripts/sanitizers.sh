# Sourced by tests that start Python, after they set `build`.
#
# A library built with the sanitizers cannot bring their runtime into a process: it has to be there first, and Python has none.
with_sanitizers() {              # with_sanitizers COMMAND...: runs it with the runtime that libspeclab_program.so needs, if any
    local runtime
    runtime=$(ldd "$build/libspeclab_program.so" | sed -n 's/.*=> \(.*lib[at]san.*\) (.*/\1/p')
    if [ -z "$runtime" ]; then
        "$@"
    else
        LD_PRELOAD=$runtime ASAN_OPTIONS=detect_leaks=0 "$@"
    fi
}
