# install.cmake - what `cmake --install build/release` puts where, `cpack` into a Debian package, and `pip install ./python` into a wheel.
#
# The program stands in the Python package, speclab/bin, and finds it from there; what it shares with the package is in speclab/share.
# In a prefix the package is lib/speclab/speclab, and bin/speclab a link.
set(package lib/speclab/speclab)
set(component)
if(SPECLAB_PACKAGE)
    set(package speclab) # the wheel's; pyproject.toml adds the files in Python
    set(component COMPONENT package)
endif()
# All of it is there, and of one revision, whenever the program was built.
add_dependencies(speclab libspeclab speclab_program)
install(TARGETS speclab RUNTIME DESTINATION ${package}/bin ${component})
install(TARGETS speclab_program LIBRARY DESTINATION ${package}/bin ${component})
file(GLOB shared_files ${CMAKE_SOURCE_DIR}/results/*.sql ${CMAKE_SOURCE_DIR}/results/store/*.sql)
install(FILES ${shared_files} DESTINATION ${package}/share ${component})
if(SPECLAB_PACKAGE)
    return()
endif()

install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/speclab DESTINATION lib/speclab PATTERN __pycache__ EXCLUDE)
file(RELATIVE_PATH program /${CMAKE_INSTALL_BINDIR} /${package}/bin/speclab)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/link)
file(CREATE_LINK ${program} ${CMAKE_BINARY_DIR}/link/speclab SYMBOLIC)
install(FILES ${CMAKE_BINARY_DIR}/link/speclab DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${library} ${shared_library}.${interface} ${shared_library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_BINARY_DIR}/speclab.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_SOURCE_DIR}/engine/speclab.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# What plugins include: `cc -shared -fPIC -I INCLUDEDIR/speclab idea.c -o idea.so`.
foreach(folder core sampling kernels models drafters verifier engine)
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/speclab FILES_MATCHING PATTERN "*.h")
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "the authors of speclab")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "speculative decoding, measured and proven exact")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # by dpkg-shlibdeps: packages dpkg-dev and file
set(CPACK_DEBIAN_PACKAGE_DEPENDS "python3 (>= 3.11), python3-jinja2")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-numpy, python3-pandas, python3-matplotlib")
set(CPACK_STRIP_FILES ON)
include(CPack)
