# The inner loops, once per instruction set, for the extension and for the benchmark: both must do the same sums.
set(reduction ${CMAKE_CURRENT_LIST_DIR}/src/reduction)

add_library(dlscale_kernels OBJECT ${reduction}/dispatch.cpp ${reduction}/kernels_portable.cpp)
# A wheel may be built on a login node and run on another CPU: no -march=native. The loops are compiled for
# several instruction sets instead, and the CPU is asked at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  target_sources(dlscale_kernels PRIVATE ${reduction}/kernels_avx2.cpp ${reduction}/kernels_avx512.cpp)
  set_source_files_properties(${reduction}/kernels_avx2.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mf16c;-mprfchw")
  # GCC 12 takes the undefined upper halves in its own intrinsics for a mistake.
  set_source_files_properties(${reduction}/kernels_avx512.cpp PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mprfchw;-Wno-maybe-uninitialized")
  target_compile_definitions(dlscale_kernels PRIVATE DLSCALE_X86_KERNELS)
endif()

# One result on all machines: no contraction into fused operations, never -ffast-math.
function(compile_as_the_ring target)
  target_compile_features(${target} PRIVATE cxx_std_17)
  target_compile_options(${target} PRIVATE -O3 -Wall -Wextra -ffp-contract=off)
endfunction()
compile_as_the_ring(dlscale_kernels)
