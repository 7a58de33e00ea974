// The inner loops of compressors: one pass over a bucket and its residual, where NumPy would need several.
// Each gives the same bits as the NumPy expressions beside its call (native.py); a test compares them.
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// One version per instruction set, chosen when the library is loaded.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define DLSCALE_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define DLSCALE_CLONES
#endif
#define DLSCALE_API extern "C" __attribute__((visibility("default")))

namespace {

// The upper half of the nearest bfloat16, ties to even; any NaN becomes the same one.
inline std::uint32_t rounded_bits(std::uint32_t bits) {
  const std::uint32_t rounded = (bits + ((bits >> 16) & 1u) + 0x7FFFu) >> 16;
  return (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded;
}

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#define DLSCALE_AVX512 __attribute__((target("avx512f")))

// All of dlscale_move but the last elements, from `begin` on, of less than a vector: 16 places at a time are
// compressed to those beyond the limit. Writes up to 15 places beyond the last one.
DLSCALE_AVX512 std::size_t move_above_avx512(float* bucket, float* residual, std::size_t count,
                                             std::uint32_t most, std::uint32_t* places, std::size_t& begin) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF), limit = _mm512_set1_epi32(static_cast<int>(most));
  const __m512i step = _mm512_set1_epi32(16);
  __m512i own = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  std::size_t found = 0;
  for (; begin + 16 <= count; begin += 16) {
    const __m512 sum = _mm512_add_ps(_mm512_loadu_ps(residual + begin), _mm512_loadu_ps(bucket + begin));
    _mm512_storeu_ps(residual + begin, sum);
    _mm512_storeu_ps(bucket + begin, _mm512_setzero_ps());
    const __mmask16 above =
        _mm512_cmpgt_epu32_mask(_mm512_and_epi32(_mm512_castps_si512(sum), magnitude), limit);
    _mm512_storeu_si512(places + found, _mm512_maskz_compress_epi32(above, own));
    found += static_cast<std::size_t>(__builtin_popcount(above));
    own = _mm512_add_epi32(own, step);
  }
  return found;
}
#endif

// residual += bucket, bucket = 0; fills `places` with those where the sum's magnitude is not at most `limit`
// (NaN is not), in order, and returns their number. `places` has room for `count` + 16.
DLSCALE_API std::size_t dlscale_move(float* bucket, float* residual, std::size_t count, float limit,
                                     std::uint32_t* places) {
  // Magnitudes as integers are in the same order, and NaN's are the largest.
  const std::uint32_t most = bits_of(limit);
  std::size_t found = 0, begin = 0;
#ifdef DLSCALE_AVX512
  if (__builtin_cpu_supports("avx512f")) {
    found = move_above_avx512(bucket, residual, count, most, places, begin);
  }
#endif
  for (; begin < count; ++begin) {
    const float sum = residual[begin] + bucket[begin];
    residual[begin] = sum;
    bucket[begin] = 0;
    // Without a branch, which nobody could foresee.
    places[found] = static_cast<std::uint32_t>(begin);
    found += (bits_of(sum) & 0x7FFFFFFFu) > most;
  }
  return found;
}

// Turns places into messages of their signs and takes `tau` towards 0 from the residual there; returns
// whether all values were finite.
DLSCALE_API int dlscale_take_signs(float* residual, std::size_t count, float tau, std::uint32_t* places) {
  int finite = 1;
  for (std::size_t index = 0; index < count; ++index) {
    float& value = residual[places[index]];
    const std::uint32_t bits = bits_of(value), sign = bits & 0x80000000u;
    finite &= (bits & 0x7F800000u) != 0x7F800000u;
    places[index] |= sign;
    value -= float_of(bits_of(tau) | sign);
  }
  return finite;
}

// Adds `step`, with the sign that the highest bit of a word says, at the place that the others say.
DLSCALE_API void dlscale_add_signs(const std::uint32_t* words, std::size_t count, float step, float* total) {
  for (std::size_t index = 0; index < count; ++index) {
    total[words[index] & 0x7FFFFFFFu] += float_of(bits_of(step) | (words[index] & 0x80000000u));
  }
}

// halves = bfloat16(residual + bucket); residual becomes what rounding takes away.
DLSCALE_API DLSCALE_CLONES void dlscale_round_bfloat16(const float* __restrict bucket,
                                                       float* __restrict residual, std::size_t count,
                                                       std::uint16_t* __restrict halves) {
  for (std::size_t index = 0; index < count; ++index) {
    const float sum = residual[index] + bucket[index];
    const std::uint32_t half = rounded_bits(bits_of(sum));
    halves[index] = static_cast<std::uint16_t>(half);
    residual[index] = sum - float_of(half << 16);
  }
}

// The same numbers as float32.
DLSCALE_API DLSCALE_CLONES void dlscale_widen_bfloat16(const std::uint16_t* __restrict halves,
                                                       std::size_t count, float* __restrict values) {
  for (std::size_t index = 0; index < count; ++index) {
    values[index] = float_of(static_cast<std::uint32_t>(halves[index]) << 16);
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
#define DLSCALE_F16C __attribute__((target("avx2,f16c")))

namespace {

DLSCALE_F16C std::size_t round_float16(const float* bucket, float* residual, std::size_t count, float most,
                                       std::uint16_t* halves) {
  const __m256 limit = _mm256_set1_ps(most), infinity = _mm256_set1_ps(float_of(0x7F800000u));
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  const __m256 no_number = _mm256_set1_ps(float_of(0x7FC00000u));
  std::size_t begin = 0;
  for (; begin + 8 <= count; begin += 8) {
    const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(residual + begin), _mm256_loadu_ps(bucket + begin));
    // Of a NaN and a number, min and max give the second one.
    __m256 limited = _mm256_min_ps(limit, sum);
    limited = _mm256_max_ps(_mm256_sub_ps(_mm256_setzero_ps(), limit), limited);
    const __m256 infinite = _mm256_cmp_ps(_mm256_and_ps(sum, magnitude), infinity, _CMP_EQ_OQ);
    const __m128i half =
        _mm256_cvtps_ph(_mm256_blendv_ps(limited, no_number, infinite), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + begin), half);
    _mm256_storeu_ps(residual + begin, _mm256_sub_ps(sum, _mm256_cvtph_ps(half)));
  }
  return begin;
}

DLSCALE_F16C std::size_t widen_float16(const std::uint16_t* halves, std::size_t count, float* values) {
  std::size_t begin = 0;
  for (; begin + 8 <= count; begin += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + begin));
    _mm256_storeu_ps(values + begin, _mm256_cvtph_ps(half));
  }
  return begin;
}

bool converts() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"); }

}  // namespace
#endif

// halves = float16(residual + bucket), limited to `most`, NaN where that is not finite; residual becomes what
// is left. Returns how many elements were done: none on a CPU without conversions, all but a few on others.
DLSCALE_API std::size_t dlscale_round_float16(const float* bucket, float* residual, std::size_t count,
                                              float most, std::uint16_t* halves) {
#ifdef DLSCALE_F16C
  if (converts()) return round_float16(bucket, residual, count, most, halves);
#endif
  (void)bucket, (void)residual, (void)count, (void)most, (void)halves;
  return 0;
}

// The same numbers as float32; returns how many were done.
DLSCALE_API std::size_t dlscale_widen_float16(const std::uint16_t* halves, std::size_t count, float* values) {
#ifdef DLSCALE_F16C
  if (converts()) return widen_float16(halves, count, values);
#endif
  (void)halves, (void)count, (void)values;
  return 0;
}
