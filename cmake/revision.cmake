# Writes the version and git revision into a header, only when they changed, so that nothing is rebuilt for nothing. What the
# revision alone does not say stands behind a +: changes, a new source file that git does not know yet (the globs of CMakeLists.txt
# do), a build that is not the released one.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE revision
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
    set(revision unknown)
else()
    execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE changed ERROR_QUIET)
    execute_process(COMMAND git -C ${SOURCE} ls-files --others --exclude-standard -- *.c *.h *.cu *.sql
                    OUTPUT_VARIABLE added ERROR_QUIET)
    if(changed OR added)
        set(revision "${revision}+changes")
    endif()
endif()
if(NOT BUILD STREQUAL "Release")
    string(TOLOWER "${BUILD}" build)
    set(revision "${revision}+${build}")
endif()
set(text "#define SPECLAB_VERSION \"${VERSION}\"\n#define SPECLAB_REVISION \"${revision}\"\n")
set(old "")
if(EXISTS ${TO})
    file(READ ${TO} old)
endif()
if(NOT old STREQUAL text)
    file(WRITE ${TO} "${text}")
endif()
