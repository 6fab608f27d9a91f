# library.cmake - the engine as a library: libspeclab.a and libspeclab.so of the modules that decoding needs, its one header speclab.h, and
# speclab.pc. examples/*.c use it as other programs would; tests/cli/test_install.sh builds them so.
include(GNUInstallDirs)

set(library_modules core sampling kernels formats tokenizers models drafters verifier engine)
set(library_objects)
foreach(module ${library_modules})
    # A module's own objects, and those that were added to it: loops compiled per instruction set, kernels compiled by nvcc.
    get_target_property(added ${module} SOURCES)
    list(FILTER added INCLUDE REGEX "TARGET_OBJECTS|[.]o$")
    list(APPEND library_objects $<TARGET_OBJECTS:${module}> ${added})
endforeach()
# What a program links besides the archive, in the order of static linking, and the shared library itself.
set(library_links "-ljansson -lpcre2-8 -lutf8proc -lxxhash -lpthread -lm")
if(cuda_works)
    string(APPEND library_links " ${CUDART_STATIC} -ldl -lrt -lstdc++")
endif()
separate_arguments(library_arguments UNIX_COMMAND "${library_links}")

# One object whose only global symbols are the header's: `fail` and the like cannot clash with a program's own names. The number of the
# shared library is that of the interface.
file(STRINGS ${CMAKE_SOURCE_DIR}/engine/speclab.h interface REGEX "^#define SPECLAB_VERSION ")
string(REGEX REPLACE ".* " "" interface "${interface}")
set(library ${CMAKE_BINARY_DIR}/libspeclab.a)
set(shared_library ${CMAKE_BINARY_DIR}/libspeclab.so)
add_custom_command(OUTPUT ${library} ${shared_library}.${interface} DEPENDS ${library_objects} COMMAND_EXPAND_LISTS VERBATIM
                   COMMAND ${CMAKE_LINKER} -r -o ${CMAKE_BINARY_DIR}/libspeclab.o ${library_objects}
                   COMMAND ${CMAKE_OBJCOPY} -w --keep-global-symbol=speclab_* ${CMAKE_BINARY_DIR}/libspeclab.o
                   COMMAND ${CMAKE_COMMAND} -E rm -f ${library}
                   COMMAND ${CMAKE_AR} rcs ${library} ${CMAKE_BINARY_DIR}/libspeclab.o
                   COMMAND ${CMAKE_C_COMPILER} -shared -Wl,-soname,libspeclab.so.${interface} -o ${shared_library}.${interface}
                           ${CMAKE_BINARY_DIR}/libspeclab.o ${library_arguments}
                   COMMAND ${CMAKE_COMMAND} -E create_symlink libspeclab.so.${interface} ${shared_library}
                   COMMENT "Making libspeclab")
add_custom_target(libspeclab ALL DEPENDS ${library})

# The prefix is found from where the file is, since `cmake --install --prefix` and DESTDIR come after this.
file(RELATIVE_PATH up ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" up "${up}")
foreach(dir LIBDIR INCLUDEDIR)
    if(IS_ABSOLUTE ${CMAKE_INSTALL_${dir}})
        set(${dir} ${CMAKE_INSTALL_${dir}})
    else()
        set(${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
    endif()
endforeach()
configure_file(${CMAKE_SOURCE_DIR}/cmake/speclab.pc.in ${CMAKE_BINARY_DIR}/speclab.pc @ONLY)
