// The kernels in vectors of 32 bytes; CMakeLists.txt says for which instruction set.
#define DLSCALE_VECTOR_BYTES 32
#include "loops.hpp"

namespace dlscale {

extern const Kernels kAvx2Kernels;
const Kernels kAvx2Kernels = kernels_called("avx2");

}  // namespace dlscale
