// The kernels in vectors of 64 bytes; CMakeLists.txt says for which instruction set.
#define DLSCALE_VECTOR_BYTES 64
#include "loops.hpp"

namespace dlscale {

extern const Kernels kAvx512Kernels;
const Kernels kAvx512Kernels = kernels_called("avx512");

}  // namespace dlscale
