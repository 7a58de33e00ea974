// The loops of RoundedReduction, in vectors of kVectorBytes; see loops.hpp for what holds of them.
#pragma once

#include <cstdint>

#include "loops.hpp"

namespace dlscale {
namespace {

using Rounded = Half<Bfloat16>;
constexpr std::size_t kRoundedLanes = Rounded::kLanes;

// What rounding took away from a value, one or a vector of them.
inline float lost(float value, float rounded) {
  const float difference = value - rounded;
  return difference - difference == 0 ? difference : 0;
}

inline Rounded::Many lost(Rounded::Many value, Rounded::Many rounded) {
  const Rounded::Many difference = value - rounded;
  return difference - difference == 0 ? difference : Rounded::Many{};
}

// The bfloat16 value nearest to `value`, adding and keeping what is lost at `residual` if that is not null.
inline float round_one(float value, float* residual) {
  if (residual) value += *residual;
  const float rounded = Bfloat16::widen(Bfloat16::narrow(value));
  if (residual) *residual = lost(value, rounded);
  return rounded;
}

inline Rounded::Many round_many(Rounded::Many value, float* residual) {
  if (residual) value += load<Rounded::Many>(residual);
  using Bits = Vector<std::uint32_t>;
  const auto bits = reinterpret_cast<Bits>(value);
  const Bits quiet = bits | 0x400000;
  const Bits nearest = value != value ? quiet : bits + 0x7fff + ((bits >> 16) & 1);
  const auto rounded = reinterpret_cast<Rounded::Many>(nearest & 0xffff0000);
  if (residual) store(residual, lost(value, rounded));
  return rounded;
}

// The upper halves: of values that are bfloat16 already.
inline Rounded::Packed pack(Rounded::Many rounded) {
  return __builtin_convertvector(reinterpret_cast<Vector<std::uint32_t>>(rounded) >> 16, Rounded::Packed);
}

inline void stream_packed(void* to, Rounded::Packed value) {
#if defined(__AVX512F__)
  _mm256_stream_si256(static_cast<__m256i*>(to), reinterpret_cast<__m256i>(value));
#elif defined(__AVX2__)
  _mm_stream_si128(static_cast<__m128i*>(to), reinterpret_cast<__m128i>(value));
#else
  store(to, value);
#endif
}

inline float* at(float* residual, std::size_t i) { return residual ? residual + i : nullptr; }

template <bool kStreamed>
inline void round_loop(std::uint16_t* out, const float* from, float* residual, std::size_t count) {
  std::size_t i = 0;
  for (; i + kRoundedLanes <= count; i += kRoundedLanes) {
    const Rounded::Packed packed = pack(round_many(load<Rounded::Many>(from + i), at(residual, i)));
    if constexpr (kStreamed) {
      stream_packed(out + i, packed);
    } else {
      store(out + i, packed);
    }
  }
  for (; i < count; ++i) out[i] = Bfloat16::narrow(round_one(from[i], at(residual, i)));
  if constexpr (kStreamed) finish_streaming();
}

void round_keeping(void* to, const float* from, float* residual, std::size_t count, bool stream) {
  auto* out = static_cast<std::uint16_t*>(to);
  stream ? round_loop<true>(out, from, residual, count) : round_loop<false>(out, from, residual, count);
}

template <bool kOwnKept, bool kKept>
void reduce_rounded_loop(const RoundedReduction& f) {
  constexpr std::size_t kUnrolled = 4;
  constexpr std::size_t kStep = kUnrolled * kRoundedLanes;
  auto* packed = static_cast<std::uint16_t*>(f.rounded);
  const auto scale = static_cast<float>(f.scale);
  const auto half = [&](std::size_t s) { return static_cast<const std::uint16_t*>(f.sources[s]); };
  const auto whole = [&](std::size_t s) { return static_cast<const float*>(f.sources[s]); };
  const auto own_residual = [&](std::size_t i) { return kOwnKept ? f.own_residual + i : nullptr; };
  const auto residual = [&](std::size_t i) { return kKept ? f.residual + i : nullptr; };

  std::size_t i = 0;
  for (; i + kStep <= f.count; i += kStep) {
    Rounded::Many values[kUnrolled], sums[kUnrolled] = {};
    for (std::size_t s = 0; s < f.num_sources; ++s) {
      if (s == f.own) {
        for (std::size_t j = 0; j < kUnrolled; ++j) {
          const std::size_t k = i + j * kRoundedLanes;
          values[j] = round_many(load<Rounded::Many>(whole(s) + k), own_residual(k));
        }
      } else {
        const std::uint16_t* from = half(s) + i;
        for (std::size_t j = 0; j < kUnrolled; ++j) values[j] = Rounded::get_many(from + j * kRoundedLanes);
      }
      for (std::size_t j = 0; j < kUnrolled; ++j) sums[j] = s ? sums[j] + values[j] : values[j];
    }
    if (f.scale != 1.0) {
      for (std::size_t j = 0; j < kUnrolled; ++j) sums[j] *= scale;
    }
    if (packed) {
      for (std::size_t j = 0; j < kUnrolled; ++j) {
        const std::size_t k = i + j * kRoundedLanes;
        sums[j] = round_many(sums[j], residual(k));
        store(packed + k, pack(sums[j]));
      }
    }
    if (f.out) {
      for (std::size_t j = 0; j < kUnrolled; ++j) store(f.out + i + j * kRoundedLanes, sums[j]);
    }
  }
  for (; i < f.count; ++i) {
    float sum = 0;
    for (std::size_t s = 0; s < f.num_sources; ++s) {
      const float value = s == f.own ? round_one(whole(s)[i], own_residual(i)) : Bfloat16::widen(half(s)[i]);
      sum = s ? sum + value : value;
    }
    if (f.scale != 1.0) sum *= scale;
    if (packed) {
      sum = round_one(sum, residual(i));
      packed[i] = Bfloat16::narrow(sum);
    }
    if (f.out) f.out[i] = sum;
  }
}

void reduce_rounded(const RoundedReduction& f) {
  if (f.own_residual) {
    f.residual ? reduce_rounded_loop<true, true>(f) : reduce_rounded_loop<true, false>(f);
  } else {
    f.residual ? reduce_rounded_loop<false, true>(f) : reduce_rounded_loop<false, false>(f);
  }
}

}  // namespace
}  // namespace dlscale
