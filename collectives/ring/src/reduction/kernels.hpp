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

// Memory that will be read soon: fetched into the cache while something else is copied.
struct Prefetch {
  const void* data = nullptr;
  std::size_t num_bytes = 0;
};

// A sum of float32 that travels as bfloat16, rounded to nearest even. What a rounding takes away is kept in a
// residual and added before the next one, so that it is late but not lost:
//
//   value = wanted + residual;   rounded = bfloat16(value);   residual = value - rounded, which is exact.
//
// Where the difference is not finite (an infinity, a NaN, a value that rounds beyond the largest), 0 is kept.
struct RoundedReduction {
  float* out;                  // the sum as float32; may be null
  void* rounded;               // the sum as bfloat16; where it is null, `out` is not rounded
  const void* const* sources;  // bfloat16 values, added in float32 in this order, but for number
  std::size_t own;             // `own`: float32, rounded first; num_sources where there is none
  float* own_residual;         // of that; may be null
  float* residual;             // of the sum, if it is rounded; may be null
  std::size_t num_sources;     // at least 1
  std::size_t count;
  double scale;  // of the sum, before its residual is added and it is rounded
};

struct Kernels {
  const char* instruction_set;
  void (*reduce[kNumTypes][3])(const Reduction&);  // by type, and sum, min, max
  void (*copy)(void* to, const void* from, std::size_t num_bytes, Prefetch prefetch);
  // Bypasses the caches: for what another core reads much later, or across a slow link between caches. `to`
  // is 64-byte aligned. The stores are complete, for other cores too, when this returns.
  void (*copy_streaming)(void* to, const void* from, std::size_t num_bytes, Prefetch prefetch);
  // Wire format of compressed exchanges: float32 to bfloat16 and back, `count` elements.
  void (*to_bfloat16)(void* to, const void* from, std::size_t count);
  void (*from_bfloat16)(void* to, const void* from, std::size_t count);
  // As to_bfloat16, with a residual that may be null; `stream` as in copy_streaming.
  void (*round_keeping)(void* to, const float* from, float* residual, std::size_t count, bool stream);
  // `out` and `rounded` may be among the sources; otherwise nothing overlaps.
  void (*reduce_rounded)(const RoundedReduction&);
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
