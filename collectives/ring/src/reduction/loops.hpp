// The loops of kernels.hpp in vectors of kVectorBytes, for the file that includes this.
//
// Everything lies in an unnamed namespace and calls no inline function of the standard library: the linker
// must not merge code of different instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.hpp"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#ifndef DLSCALE_VECTOR_BYTES
#error "the including file says how wide its vectors are"
#endif

namespace dlscale {
namespace {

constexpr std::size_t kVectorBytes = DLSCALE_VECTOR_BYTES;
constexpr std::size_t kLineBytes = 64;

template <typename T, std::size_t kBytes = kVectorBytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(kBytes)));  // an alias would lose the attribute in templates
};
template <typename T, std::size_t kBytes = kVectorBytes>
using Vector = typename VectorOf<T, kBytes>::type;

// Memory of any alignment, read and written as vectors.
template <typename V>
inline V load(const void* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof(V));
  return value;
}

template <typename V>
inline void store(void* to, V value) {
  __builtin_memcpy(to, &value, sizeof(V));
}

template <typename V>
inline void stream(void* to, V value) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), reinterpret_cast<__m512i>(value));
#elif defined(__AVX2__)
  _mm256_stream_si256(static_cast<__m256i*>(to), reinterpret_cast<__m256i>(value));
#else
  store(to, value);
#endif
}

// Streaming stores become visible in order only after this.
inline void finish_streaming() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

// ---- how each element type is held while it is reduced ----------------------------------------------

// Number: what is stored. Sum: what is added (unsigned where a sum may wrap).
template <typename Number, typename Sum = Number>
struct Plain {
  using Stored = Number;
  using Single = Number;
  using Many = Vector<Number>;
  static constexpr std::size_t kLanes = kVectorBytes / sizeof(Number);

  static Single get(const Stored* from) { return *from; }
  static void put(Stored* to, Single value) { *to = value; }
  static Many get_many(const Stored* from) { return load<Many>(from); }
  static void put_many(Stored* to, Many value) { store(to, value); }
  static void stream_many(Stored* to, Many value) { stream(to, value); }
  static Single add(Single a, Single b) {
    return static_cast<Number>(static_cast<Sum>(a) + static_cast<Sum>(b));
  }
  static Many add(Many a, Many b) {
    return reinterpret_cast<Many>(reinterpret_cast<Vector<Sum>>(a) + reinterpret_cast<Vector<Sum>>(b));
  }
};

// Two bytes in memory, float32 in registers; Code says how.
template <typename Code>
struct Half {
  using Stored = std::uint16_t;
  using Single = float;
  using Many = Vector<float>;
  using Packed = Vector<std::uint16_t, kVectorBytes / 2>;
  static constexpr std::size_t kLanes = kVectorBytes / sizeof(float);

  static Single get(const Stored* from) { return Code::widen(*from); }
  static void put(Stored* to, Single value) { *to = Code::narrow(value); }
  static Many get_many(const Stored* from) { return Code::template widen<Many>(load<Packed>(from)); }
  static void put_many(Stored* to, Many value) { store(to, Code::template narrow<Packed>(value)); }
  static void stream_many(Stored* to, Many value) { put_many(to, value); }
  static Single add(Single a, Single b) { return a + b; }
  static Many add(Many a, Many b) { return a + b; }
};

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float float_of(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// bfloat16 is the upper half of float32. Rounding adds half a unit, a little less where that decides for the
// even neighbour; every NaN becomes 0x7fc0, as in collectives/compression/halves.py.
struct Bfloat16 {
  static float widen(std::uint16_t value) { return float_of(static_cast<std::uint32_t>(value) << 16); }
  static std::uint16_t narrow(float value) {
    return static_cast<std::uint16_t>(rounded(bits_of(value), value != value ? ~0u : 0u));
  }

  template <typename Many, typename Packed>
  static Many widen(Packed packed) {
    return reinterpret_cast<Many>(__builtin_convertvector(packed, Vector<std::uint32_t>) << 16);
  }
  template <typename Packed, typename Many>
  static Packed narrow(Many value) {
    const auto is_nan = reinterpret_cast<Vector<std::uint32_t>>(value != value);
    return __builtin_convertvector(rounded(reinterpret_cast<Vector<std::uint32_t>>(value), is_nan), Packed);
  }

 private:
  // One number or a vector of them; all bits of `is_nan` are set where it is one.
  template <typename Bits>
  static Bits rounded(Bits bits, Bits is_nan) {
    const Bits nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (nearest & ~is_nan) | (is_nan & 0x7fc0);
  }
};

// IEEE half precision: by the CPU's own conversion where there is one, else by hand with the same bits.
struct Float16 {
  static float widen(std::uint16_t value) {
    const std::uint32_t sign = static_cast<std::uint32_t>(value & 0x8000) << 16;
    const std::uint32_t exponent = (value >> 10) & 0x1f;
    std::uint32_t fraction = value & 0x3ff;
    if (exponent == 0x1f) {  // infinity, or a NaN, made quiet
      return float_of(sign | 0x7f800000 | (fraction ? 0x400000 : 0) | (fraction << 13));
    }
    if (exponent != 0) return float_of(sign | ((exponent + 112) << 23) | (fraction << 13));
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // zero or denormal: exact
    return float_of(sign | bits_of(magnitude));
  }

  static std::uint16_t narrow(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000;
    const std::uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
      return static_cast<std::uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
    if (magnitude >= 0x477ff000) return static_cast<std::uint16_t>(sign | 0x7c00);  // rounds beyond 65504
    if (magnitude < 0x38800000) {  // below the smallest normal one: adding 0.5 rounds to multiples of 2^-24
      return static_cast<std::uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000));
    }
    return static_cast<std::uint16_t>(sign |
                                      ((magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13));
  }

#if defined(__AVX512F__)
  template <typename Many, typename Packed>
  static Many widen(Packed packed) {
    return reinterpret_cast<Many>(_mm512_cvtph_ps(reinterpret_cast<__m256i>(packed)));
  }
  template <typename Packed, typename Many>
  static Packed narrow(Many value) {
    return reinterpret_cast<Packed>(
        _mm512_cvtps_ph(reinterpret_cast<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__F16C__)
  template <typename Many, typename Packed>
  static Many widen(Packed packed) {
    return reinterpret_cast<Many>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(packed)));
  }
  template <typename Packed, typename Many>
  static Packed narrow(Many value) {
    return reinterpret_cast<Packed>(
        _mm256_cvtps_ph(reinterpret_cast<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
  }
#else
  template <typename Many, typename Packed>
  static Many widen(Packed packed) {
    Many wide{};
    for (std::size_t i = 0; i < sizeof(Packed) / 2; ++i) wide[i] = widen(packed[i]);
    return wide;
  }
  template <typename Packed, typename Many>
  static Packed narrow(Many value) {
    Packed packed{};
    for (std::size_t i = 0; i < sizeof(Packed) / 2; ++i) packed[i] = narrow(value[i]);
    return packed;
  }
#endif
};

// ---- how two elements become one; one value or a vector of them --------------------------------------

struct Sum {
  template <typename E, typename T>
  static T apply(T a, T b) {
    return E::add(a, b);
  }
};

// A NaN in `b` is taken, one in `a` is kept, since no comparison with it holds.
struct Min {
  template <typename E, typename T>
  static T apply(T a, T b) {
    return (b < a) | (b != b) ? b : a;
  }
};

struct Max {
  template <typename E, typename T>
  static T apply(T a, T b) {
    return (b > a) | (b != b) ? b : a;
  }
};

// What is written soon is claimed: fetched to be written. A line that another core has read since costs a
// crossing between caches then, which the stores would have to wait for one by one.
constexpr std::size_t kClaimedAhead = 16 * kLineBytes;

inline void claim(void* to, std::size_t offset, std::size_t num_bytes) {
  if (offset < num_bytes) __builtin_prefetch(static_cast<char*>(to) + offset, 1, 3);
}

inline void claim_first(void* to, std::size_t num_bytes) {
  for (std::size_t offset = 0; offset < kClaimedAhead; offset += kLineBytes) claim(to, offset, num_bytes);
}

// ---- the reduction -----------------------------------------------------------------------------------

template <typename E, typename Combine, bool kScaled, bool kStreamed>
void reduce_loop(const Reduction& f) {
  using Stored = typename E::Stored;
  using Single = typename E::Single;
  using Many = typename E::Many;
  constexpr std::size_t kUnrolled = 4;
  constexpr std::size_t kStep = kUnrolled * E::kLanes;
  auto* out = static_cast<Stored*>(f.out);
  auto* second = static_cast<Stored*>(f.second);
  const auto source = [&](std::size_t s) { return static_cast<const Stored*>(f.sources[s]); };
  const auto scale = static_cast<Single>(f.scale);
  const std::size_t num_bytes = f.count * sizeof(Stored);
  if (second && !kStreamed) claim_first(second, num_bytes);

  std::size_t i = 0;
  for (; i + kStep <= f.count; i += kStep) {
    if (second && !kStreamed) {
      for (std::size_t byte = 0; byte < kStep * sizeof(Stored); byte += kLineBytes) {
        claim(second, i * sizeof(Stored) + byte + kClaimedAhead, num_bytes);
      }
    }
    Many sums[kUnrolled];
    for (std::size_t j = 0; j < kUnrolled; ++j) sums[j] = E::get_many(source(0) + i + j * E::kLanes);
    for (std::size_t s = 1; s < f.num_sources; ++s) {
      const Stored* from = source(s) + i;
      for (std::size_t j = 0; j < kUnrolled; ++j) {
        sums[j] = Combine::template apply<E>(sums[j], E::get_many(from + j * E::kLanes));
      }
    }
    if constexpr (kScaled) {
      for (std::size_t j = 0; j < kUnrolled; ++j) sums[j] *= scale;
    }
    for (std::size_t j = 0; j < kUnrolled; ++j) E::put_many(out + i + j * E::kLanes, sums[j]);
    if (second) {
      for (std::size_t j = 0; j < kUnrolled; ++j) {
        if constexpr (kStreamed) {
          E::stream_many(second + i + j * E::kLanes, sums[j]);
        } else {
          E::put_many(second + i + j * E::kLanes, sums[j]);
        }
      }
    }
  }
  for (; i < f.count; ++i) {
    Single sum = E::get(source(0) + i);
    for (std::size_t s = 1; s < f.num_sources; ++s)
      sum = Combine::template apply<E>(sum, E::get(source(s) + i));
    if constexpr (kScaled) sum *= scale;
    E::put(out + i, sum);
    if (second) E::put(second + i, sum);
  }
  if constexpr (kStreamed) finish_streaming();
}

template <typename E, typename Combine>
void reduce_with(const Reduction& f) {
  const bool scaled = f.scale != 1.0;
  const bool streamed = f.stream_second && f.second;
  if (scaled) {
    streamed ? reduce_loop<E, Combine, true, true>(f) : reduce_loop<E, Combine, true, false>(f);
  } else {
    streamed ? reduce_loop<E, Combine, false, true>(f) : reduce_loop<E, Combine, false, false>(f);
  }
}

// ---- copies ----------------------------------------------------------------------------------------------

template <bool kStreamed>
inline void copy_loop(void* to, const void* from, std::size_t num_bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  constexpr std::size_t kStep = 4 * kLineBytes;
  constexpr std::size_t kNumVectors = kStep / kVectorBytes;
  if constexpr (!kStreamed) claim_first(to, num_bytes);
  std::size_t i = 0;
  for (; i + kStep <= num_bytes; i += kStep) {
    if constexpr (!kStreamed) {
      for (std::size_t line = 0; line < kStep; line += kLineBytes)
        claim(to, i + line + kClaimedAhead, num_bytes);
    }
    Vector<std::uint32_t> values[kNumVectors];
    for (std::size_t j = 0; j < kNumVectors; ++j) {
      values[j] = load<Vector<std::uint32_t>>(in + i + j * kVectorBytes);
    }
    for (std::size_t j = 0; j < kNumVectors; ++j) {
      if constexpr (kStreamed) {
        stream(out + i + j * kVectorBytes, values[j]);
      } else {
        store(out + i + j * kVectorBytes, values[j]);
      }
    }
  }
  __builtin_memcpy(out + i, in + i, num_bytes - i);
  if constexpr (kStreamed) finish_streaming();
}

void copy_cached(void* to, const void* from, std::size_t num_bytes) { copy_loop<false>(to, from, num_bytes); }

void copy_streaming(void* to, const void* from, std::size_t num_bytes) {
  copy_loop<true>(to, from, num_bytes);
}

// ---- the table ----------------------------------------------------------------------------------------

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
