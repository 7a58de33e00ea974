// The kernels in vectors of 16 bytes; CMakeLists.txt says for which instruction set.
#define DLSCALE_VECTOR_BYTES 16
#include "loops.hpp"

namespace dlscale {

extern const Kernels kPortableKernels;
const Kernels kPortableKernels = kernels_called("portable");

}  // namespace dlscale
