// One instruction set's kernels, for the file that includes this; see loops.hpp.
#pragma once

#include <cstdint>

#include "loops.hpp"

namespace dlscale {
namespace {

template <typename E>
constexpr void (*kReductions[3])(const Reduction&) = {reduce_with<E, Sum>, reduce_with<E, Min>,
                                                      reduce_with<E, Max>};

constexpr Kernels kernels_called(const char* instruction_set) {
  using F32 = Plain<float>;
  using F64 = Plain<double>;
  using I32 = Plain<std::int32_t, std::uint32_t>;
  using I64 = Plain<std::int64_t, std::uint64_t>;
  using B16 = Half<Bfloat16>;
  using F16 = Half<Float16>;
  return {
      instruction_set,
      {{kReductions<F32>[0], kReductions<F32>[1], kReductions<F32>[2]},
       {kReductions<F64>[0], kReductions<F64>[1], kReductions<F64>[2]},
       {kReductions<B16>[0], kReductions<B16>[1], kReductions<B16>[2]},
       {kReductions<F16>[0], kReductions<F16>[1], kReductions<F16>[2]},
       {kReductions<I32>[0], kReductions<I32>[1], kReductions<I32>[2]},
       {kReductions<I64>[0], kReductions<I64>[1], kReductions<I64>[2]}},
      copy_cached,
      copy_streaming,
  };
}

}  // namespace
}  // namespace dlscale
