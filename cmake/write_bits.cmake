# Prints the bits of the CPU's operations, to be compared with those of another processor (./run arm).
add_executable(write_bits tests/device/write_bits.c tests/device/isa_cases.c tests/device/random_tensors.c)
target_link_libraries(write_bits PRIVATE kernels)
