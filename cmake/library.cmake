# library.cmake - the engine as a library: libspeclab.a of the modules that decoding needs, its one header speclab.h, speclab.pc, and what
# `cmake --install` puts where. examples/*.c use it as other programs would; tests/cli/test_install.sh builds them so.
include(GNUInstallDirs)

set(library_modules core sampling kernels formats tokenizers models drafters verifier engine)
set(library_objects)
foreach(module ${library_modules})
    # A module's own objects, and those that were added to it: loops compiled per instruction set, kernels compiled by nvcc.
    get_target_property(added ${module} SOURCES)
    list(FILTER added INCLUDE REGEX "TARGET_OBJECTS|[.]o$")
    list(APPEND library_objects $<TARGET_OBJECTS:${module}> ${added})
endforeach()
# One object whose only global symbols are the header's: `fail` and the like cannot clash with a program's own names.
set(library ${CMAKE_BINARY_DIR}/libspeclab.a)
add_custom_command(OUTPUT ${library} DEPENDS ${library_objects} COMMAND_EXPAND_LISTS VERBATIM
                   COMMAND ${CMAKE_LINKER} -r -o ${CMAKE_BINARY_DIR}/libspeclab.o ${library_objects}
                   COMMAND ${CMAKE_OBJCOPY} -w --keep-global-symbol=speclab_* ${CMAKE_BINARY_DIR}/libspeclab.o
                   COMMAND ${CMAKE_COMMAND} -E rm -f ${library}
                   COMMAND ${CMAKE_AR} rcs ${library} ${CMAKE_BINARY_DIR}/libspeclab.o
                   COMMENT "Making libspeclab.a")
add_custom_target(libspeclab ALL DEPENDS ${library})
add_dependencies(speclab libspeclab) # so that what is installed is there, and of one revision, whenever the program was built

# What a program links besides, in the order of static linking.
set(library_links "-ljansson -lpcre2-8 -lutf8proc -lxxhash -lpthread -lm")
if(cuda_works)
    string(APPEND library_links " ${CUDART_STATIC} -ldl -lrt -lstdc++")
endif()
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

install(TARGETS speclab RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_SOURCE_DIR}/engine/speclab.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# What plugins include: `cc -shared -fPIC -I INCLUDEDIR/speclab idea.c -o idea.so`.
foreach(folder core sampling kernels models drafters verifier engine)
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/speclab FILES_MATCHING PATTERN "*.h")
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/speclab.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# What `pip install ./python` puts beside the package: the program, and the files that both read.
if(SPECLAB_PACKAGE)
    install(TARGETS speclab RUNTIME DESTINATION speclab/bin COMPONENT package)
    install(TARGETS speclab_program LIBRARY DESTINATION speclab/bin COMPONENT package)
    file(GLOB shared_files ${CMAKE_SOURCE_DIR}/results/*.sql ${CMAKE_SOURCE_DIR}/results/store/*.sql)
    install(FILES ${shared_files} DESTINATION speclab/share COMPONENT package)
endif()
