// The inner loops: reducing the same elements of several ranks, and copying.
//
// Compiled once per instruction set (kernels_*.cpp) and chosen at run time, because a library built on a
// login node runs on other CPUs. All instruction sets give the same bits; only which one of several NaNs an
// element ends with is left open.
#pragma once

#include <cstddef>

#include "types.hpp"

namespace dlscale {

// out[i] = (sources[0][i] op sources[1][i] op ...) in this order, times `scale` where that is not 1.
//
// bfloat16 and float16 are added in float32 and rounded once, to nearest even. Integer sums wrap. A NaN among
// the elements makes min and max NaN. `out` may be one of the sources; otherwise nothing overlaps.
struct Reduction {
  void* out;
  void* second;  // gets the same bits as `out`; may be null
  const void* const* sources;
  std::size_t num_sources;  // at least 1
  std::size_t count;
  double scale;
  bool stream_second;  // `second` bypasses the caches; 64-byte aligned then
};

struct Kernels {
  const char* instruction_set;
  void (*reduce[kNumTypes][3])(const Reduction&);  // by type, and sum, min, max
  void (*copy)(void* to, const void* from, std::size_t num_bytes);
  // Bypasses the caches: for what another core reads much later, or across a slow link between caches. `to`
  // is 64-byte aligned. The stores are complete, for other cores too, when this returns.
  void (*copy_streaming)(void* to, const void* from, std::size_t num_bytes);
};

// The best that this CPU runs; `name` ("avx512", "avx2", "portable") forces one and throws
// std::invalid_argument if this CPU or this build has it not.
const Kernels& kernels();
const Kernels& kernels(const char* name);

// Average is a sum that is scaled when it is complete.
inline void reduce(const Kernels& k, Type type, Op op, const Reduction& arguments) {
  const std::size_t index = op == Op::min ? 1 : op == Op::max ? 2 : 0;
  k.reduce[static_cast<std::size_t>(type)][index](arguments);
}

}  // namespace dlscale
