# cuda.cmake - the CUDA kernels: compiled by nvcc where it is wanted and found, and by the C++ compiler for a GPU emulated on the host, on
# which tests run them.
#
# The dev build does not use nvcc: there is nothing to sanitize, and `release` compiles with the same warnings.
# Without nvcc, kernels/nocuda.c reports an error when the device is opened. Without a C++ compiler the emulated tests are
# not built. nvcc is a custom command, not a CMake language, so that everything is linked as C.

set(SPECLAB_CUDA auto CACHE STRING "kernels for NVIDIA GPUs: auto (if nvcc is found), local (if this machine has a GPU, too), on, off")
set(SPECLAB_CUDA_ARCHITECTURES "80;90" CACHE STRING "compute capabilities to compile for, without the dot")
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)

# No contraction, as everywhere: kernels fuse explicitly. -O3 in every build: the kernels are checked elsewhere.
set(cuda_flags -std=c++20 -O3 --fmad=false -I${CMAKE_SOURCE_DIR} -Xcompiler=-Wall,-fPIC -Werror=all-warnings)
foreach(capability ${SPECLAB_CUDA_ARCHITECTURES})
    list(APPEND cuda_flags -gencode=arch=compute_${capability},code=sm_${capability})
endforeach()
list(GET SPECLAB_CUDA_ARCHITECTURES -1 capability) # PTX of the last one, for newer GPUs
list(APPEND cuda_flags -gencode=arch=compute_${capability},code=compute_${capability})

set(cuda_wanted TRUE)
if(SPECLAB_CUDA STREQUAL off)
    set(cuda_wanted FALSE)
elseif(SPECLAB_CUDA STREQUAL local AND NOT EXISTS /dev/nvidia0)
    execute_process(COMMAND nvidia-smi -L RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(NOT status EQUAL 0)
        set(cuda_wanted FALSE)
    endif()
endif()

# Whether nvcc works: it needs a C++ compiler that it supports.
set(cuda_works FALSE)
if(cuda_wanted)
    find_program(NVCC nvcc HINTS ENV CUDA_PATH PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
    if(NVCC)
        get_filename_component(nvcc ${NVCC} REALPATH)
        get_filename_component(cuda_home ${nvcc}/../.. ABSOLUTE)
        find_library(CUDART_STATIC cudart_static HINTS ${cuda_home}/lib64 ${cuda_home}/targets/x86_64-linux/lib
                     ${cuda_home}/targets/sbsa-linux/lib)
        file(WRITE ${CMAKE_BINARY_DIR}/cuda_probe.cu "#include <cuda_runtime.h>\n__global__ void probe() {}\n")
        execute_process(COMMAND ${NVCC} ${cuda_flags} -c cuda_probe.cu -o cuda_probe.o WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
                        RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
        if(status EQUAL 0 AND CUDART_STATIC)
            set(cuda_works TRUE)
        else()
            message(STATUS "CUDA is disabled: ${NVCC} does not compile for compute capabilities "
                           "${SPECLAB_CUDA_ARCHITECTURES}, or there is no libcudart_static.a: ${output}")
        endif()
    endif()
    if(SPECLAB_CUDA STREQUAL on AND NOT cuda_works)
        message(FATAL_ERROR "SPECLAB_CUDA is on, and no working nvcc was found (searched PATH and in /usr/local/cuda/bin)")
    endif()
endif()

if(cuda_works)
    message(STATUS "CUDA: ${NVCC}, for compute capabilities ${SPECLAB_CUDA_ARCHITECTURES}")
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
    foreach(source ${cuda_sources})
        get_filename_component(name ${source} NAME_WE)
        set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
        add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d VERBATIM
                           COMMAND ${NVCC} ${cuda_flags} -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
                           COMMENT "Compiling ${name}.cu")
        target_sources(kernels PRIVATE ${object})
        set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    endforeach()
    target_link_libraries(kernels PUBLIC ${CUDART_STATIC} ${CMAKE_DL_LIBS} Threads::Threads rt stdc++)
else()
    target_sources(kernels PRIVATE ${CMAKE_SOURCE_DIR}/kernels/nocuda.c)
endif()

if(SPECLAB_EMULATED AND SPECLAB_EVERY_ISA AND EXISTS ${CMAKE_SOURCE_DIR}/tests/device/emulated/launch.cpp)
    add_subdirectory(${CMAKE_SOURCE_DIR}/tests/device/emulated emulated)
endif()
