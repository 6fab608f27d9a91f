# Writes the version and git revision to a header, only when they changed, to avoid needless rebuilds. A + suffix marks what
# the revision does not cover: changes, source files that git does not track (but the globs of CMakeLists.txt find), a
# build type other than Release.
execute_process(COMMAND git -C "${SOURCE}" rev-parse --short=12 HEAD OUTPUT_VARIABLE revision
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
    set(revision unknown)
else()
    execute_process(COMMAND git -C "${SOURCE}" status --porcelain --untracked-files=no OUTPUT_VARIABLE changed ERROR_QUIET)
    execute_process(COMMAND git -C "${SOURCE}" ls-files --others --exclude-standard -- *.c *.h *.cu *.sql
                    OUTPUT_VARIABLE added ERROR_QUIET)
    if(changed OR added)
        set(revision "${revision}+changes")
    endif()
endif()
if(NOT BUILD STREQUAL "Release")
    string(TOLOWER "${BUILD}" build)
    set(revision "${revision}+${build}")
endif()
set(text "#define SPECLAB_RELEASE \"${VERSION}\"\n#define SPECLAB_REVISION \"${revision}\"\n")
set(old "")
if(EXISTS "${TO}")
    file(READ "${TO}" old)
endif()
if(NOT old STREQUAL text)
    file(WRITE "${TO}" "${text}")
endif()
