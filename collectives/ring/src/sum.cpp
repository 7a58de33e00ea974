#include "sum.hpp"

#include <cstdint>

#ifdef DLSCALE_TARGET_CLONES
#define DLSCALE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DLSCALE_CLONES
#endif

namespace dlscale {
namespace {

// Inlined into each clone below, so that it is vectorised for that clone's instruction set.
template <typename T>
inline __attribute__((always_inline)) void add_all(void* into, const void* from, std::size_t count) {
  T* __restrict sums = static_cast<T*>(into);
  const T* __restrict values = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) sums[i] += values[i];
}

DLSCALE_CLONES void add_float32(void* into, const void* from, std::size_t count) {
  add_all<float>(into, from, count);
}

DLSCALE_CLONES void add_float64(void* into, const void* from, std::size_t count) {
  add_all<double>(into, from, count);
}

// Unsigned, because there a sum that wraps is defined; the bits are those of the signed sum.
DLSCALE_CLONES void add_int32(void* into, const void* from, std::size_t count) {
  add_all<std::uint32_t>(into, from, count);
}

DLSCALE_CLONES void add_int64(void* into, const void* from, std::size_t count) {
  add_all<std::uint64_t>(into, from, count);
}

}  // namespace

const Element kFloat32 = {sizeof(float), add_float32};
const Element kFloat64 = {sizeof(double), add_float64};
const Element kInt32 = {sizeof(std::int32_t), add_int32};
const Element kInt64 = {sizeof(std::int64_t), add_int64};

}  // namespace dlscale
