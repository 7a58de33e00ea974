// What the reduction over ranks must be: written plainly, one element at a time, and sharing nothing with the
// engine's kernels but the names of types and operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reduction/types.hpp"

namespace dlscale::testing {

enum class Values {
  tame,  // numbers of moderate size, whose sums are rounded
  wild,  // any bits: NaN, infinities, denormals, signed zeros, overflow
};

// The same on every rank that asks: element i of what `rank` brings to an operation called `seed`.
void fill(std::byte* out, std::size_t begin, std::size_t count, Type type, Values values, std::uint64_t seed,
          int rank);

// out[i] becomes (source 0 op source 1 op ...) times `scale`, in this order; bfloat16 and float16 in float32,
// rounded once.
void reduce_plainly(std::byte* out, const std::vector<const std::byte*>& sources, std::size_t count,
                    Type type, Op op, double scale);

// Empty if `found` has the bits of `expected`, any NaN being as good as another; else what differs first.
std::string difference(const std::byte* found, const std::byte* expected, std::size_t count, Type type);

inline constexpr Type kTypes[] = {Type::float32, Type::float64, Type::bfloat16,
                                  Type::float16, Type::int32,   Type::int64};
inline constexpr Op kOps[] = {Op::sum, Op::average, Op::min, Op::max};

}  // namespace dlscale::testing
