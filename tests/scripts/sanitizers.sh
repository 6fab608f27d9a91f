# Sourced by tests that start Python, after they set `build`.
#
# A library built with the sanitizers cannot bring their runtime into a process: it has to be there first, and Python has none.
# Sets sanitized, the words before a command that loads libspeclab_program.so: none if it needs no runtime.
sanitized=()
runtime=$(ldd "$build/libspeclab_program.so" | sed -n 's/.*=> \(.*lib[at]san.*\) (.*/\1/p')
[ -z "$runtime" ] || sanitized=(env LD_PRELOAD="$runtime" ASAN_OPTIONS=detect_leaks=0)
