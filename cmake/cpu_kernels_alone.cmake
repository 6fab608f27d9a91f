# The CPU kernels and a program that writes their bits, without any library: for a processor that is emulated (./run arm).
add_library(kernels STATIC core/clock.c core/error.c core/memory.c core/printable.c core/tensor.c core/utf8.c kernels/backend.c)
target_link_libraries(kernels PUBLIC flags Threads::Threads)
include(cmake/instruction_sets.cmake)
include(cmake/write_bits.cmake)
