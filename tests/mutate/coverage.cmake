# Coverage in the folders that are mutated only, as it would slow down kernels.
foreach(target drafters verifier exact engine sampling statistics results experiments sampling_sampling_plain sampling_sampling_avx2
        sampling_sampling_avx512)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL target_compile_options ${target} PRIVATE --coverage)")
endforeach()
