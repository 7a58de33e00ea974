// One instruction set's kernels, for the file that includes this; see loops.hpp.
#pragma once

#include "loops.hpp"
#include "rounded_loops.hpp"

namespace dlscale {
namespace {

template <typename E>
constexpr void (*kFolds[3])(const Fold&) = {fold_with<E, Sum>, fold_with<E, Min>, fold_with<E, Max>};

constexpr Kernels kernels_called(const char* instruction_set) {
  using F32 = Plain<float>;
  using F64 = Plain<double>;
  using I32 = Plain<std::int32_t, std::uint32_t>;
  using I64 = Plain<std::int64_t, std::uint64_t>;
  using B16 = Half<Bfloat16>;
  using F16 = Half<Float16>;
  return {
      instruction_set,
      {{kFolds<F32>[0], kFolds<F32>[1], kFolds<F32>[2]},
       {kFolds<F64>[0], kFolds<F64>[1], kFolds<F64>[2]},
       {kFolds<B16>[0], kFolds<B16>[1], kFolds<B16>[2]},
       {kFolds<F16>[0], kFolds<F16>[1], kFolds<F16>[2]},
       {kFolds<I32>[0], kFolds<I32>[1], kFolds<I32>[2]},
       {kFolds<I64>[0], kFolds<I64>[1], kFolds<I64>[2]}},
      copy_cached,
      copy_streaming,
      to_bfloat16,
      from_bfloat16,
      round_keeping,
      fold_rounded,
  };
}

}  // namespace
}  // namespace dlscale
