#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

namespace dlscale::testing {
namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <typename T>
T read(const std::byte* from, std::size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void write(std::byte* to, std::size_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

// A binary format of 16 bits: how many bits of fraction, and the exponent of its smallest normal number.
struct Format {
  int num_fraction_bits;
  int least_exponent;
};
constexpr Format kBfloat16 = {7, -126};
constexpr Format kFloat16 = {10, -14};

int largest_field(Format f) { return (1 << (15 - f.num_fraction_bits)) - 1; }

float widened(std::uint16_t bits, Format f) {
  const int fraction = bits & ((1 << f.num_fraction_bits) - 1);
  const int field = (bits & 0x7fff) >> f.num_fraction_bits;
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (field == largest_field(f)) {
    return fraction ? std::numeric_limits<float>::quiet_NaN()
                    : static_cast<float>(sign * std::numeric_limits<double>::infinity());
  }
  const double significand = fraction * std::ldexp(1.0, -f.num_fraction_bits) + (field ? 1.0 : 0.0);
  return static_cast<float>(sign * std::ldexp(significand, f.least_exponent + (field ? field - 1 : 0)));
}

// Rounds to the nearest number of the format, a tie to the even one.
std::uint16_t narrowed(float value, Format f) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const auto infinity = static_cast<std::uint16_t>(largest_field(f) << f.num_fraction_bits);
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | 1);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  const double magnitude = std::fabs(static_cast<double>(value));
  const int exponent = magnitude == 0 ? f.least_exponent : std::max(std::ilogb(magnitude), f.least_exponent);
  const double unit = std::ldexp(1.0, exponent - f.num_fraction_bits);  // between neighbours
  const double in_units = std::nearbyint(magnitude / unit);
  // In these units a normal number has the hidden bit, and an overflow into the next binade carries by
  // itself.
  const double number = in_units + std::ldexp(1.0, f.num_fraction_bits) * (exponent - f.least_exponent);
  if (number >= infinity) return static_cast<std::uint16_t>(sign | infinity);
  return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(number));
}

template <typename T>
T reduced(T a, T b, Op op) {
  if (op == Op::sum || op == Op::average) return a + b;
  if (b != b) return b;
  if (a != a) return a;
  return op == Op::min ? (b < a ? b : a) : (b > a ? b : a);
}

template <typename T, typename Unsigned>
T reduced_integer(T a, T b, Op op) {
  if (op == Op::min) return b < a ? b : a;
  if (op == Op::max) return b > a ? b : a;
  return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
}

template <typename T>
void reduce_floats(std::byte* out, const std::vector<const std::byte*>& sources, std::size_t i, Op op,
                   double scale) {
  T result = read<T>(sources[0], i);
  for (std::size_t s = 1; s < sources.size(); ++s) result = reduced(result, read<T>(sources[s], i), op);
  write(out, i, scale == 1.0 ? result : static_cast<T>(result * static_cast<T>(scale)));
}

void reduce_halves(std::byte* out, const std::vector<const std::byte*>& sources, std::size_t i, Op op,
                   double scale, Format f) {
  float result = widened(read<std::uint16_t>(sources[0], i), f);
  for (std::size_t s = 1; s < sources.size(); ++s) {
    result = reduced(result, widened(read<std::uint16_t>(sources[s], i), f), op);
  }
  if (scale != 1.0) result = result * static_cast<float>(scale);
  write(out, i, narrowed(result, f));
}

template <typename T, typename Unsigned>
void reduce_integers(std::byte* out, const std::vector<const std::byte*>& sources, std::size_t i, Op op) {
  T result = read<T>(sources[0], i);
  for (std::size_t s = 1; s < sources.size(); ++s) {
    result = reduced_integer<T, Unsigned>(result, read<T>(sources[s], i), op);
  }
  write(out, i, result);
}

// A number at an edge of its format: zero, denormal, smallest and largest normal, infinity, NaN of both
// kinds.
void write_edge(std::byte* out, std::size_t i, Type type, std::uint64_t chance) {
  const int num_bits = static_cast<int>(8 * width(type));
  const int num_fraction_bits = type == Type::float64    ? 52
                                : type == Type::float32  ? 23
                                : type == Type::bfloat16 ? kBfloat16.num_fraction_bits
                                                         : kFloat16.num_fraction_bits;
  const std::uint64_t ones = (std::uint64_t{1} << num_fraction_bits) - 1;
  const std::uint64_t largest = (std::uint64_t{1} << (num_bits - 1 - num_fraction_bits)) - 1;
  const std::uint64_t exponents[] = {0, 1, largest - 1, largest};
  const std::uint64_t fractions[] = {0, 0, 1, ones, ones / 2 + 1, ones / 2, ones / 2 + 2, mix(chance) & ones};
  const std::uint64_t bits = (chance & 1) << (num_bits - 1) | exponents[chance / 2 % 4] << num_fraction_bits |
                             fractions[chance / 8 % 8];
  std::memcpy(out + i * width(type), &bits, width(type));
}

bool is_nan(const std::byte* values, std::size_t i, Type type) {
  switch (type) {
    case Type::float32:
      return std::isnan(read<float>(values, i));
    case Type::float64:
      return std::isnan(read<double>(values, i));
    case Type::bfloat16:
      return std::isnan(widened(read<std::uint16_t>(values, i), kBfloat16));
    case Type::float16:
      return std::isnan(widened(read<std::uint16_t>(values, i), kFloat16));
    default:
      return false;
  }
}

}  // namespace

void fill(std::byte* out, std::size_t begin, std::size_t count, Type type, Values values, std::uint64_t seed,
          int rank) {
  const std::uint64_t key = mix(seed * 1000 + static_cast<std::uint64_t>(rank));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = mix(key + begin + i);
    if (is_integer(type) || (values == Values::wild && bits % 4 == 0)) {
      const std::uint64_t any = mix(bits);
      std::memcpy(out + i * width(type), &any, width(type));
      continue;
    }
    if (values == Values::wild) {
      write_edge(out, i, type, bits >> 2);
      continue;
    }
    const double number =
        std::ldexp(static_cast<double>(bits >> 11) * 0x1p-53 - 0.5, static_cast<int>(bits % 9));
    if (type == Type::float32) write(out, i, static_cast<float>(number));
    if (type == Type::float64) write(out, i, number);
    if (type == Type::bfloat16) write(out, i, narrowed(static_cast<float>(number), kBfloat16));
    if (type == Type::float16) write(out, i, narrowed(static_cast<float>(number), kFloat16));
  }
}

void reduce_plainly(std::byte* out, const std::vector<const std::byte*>& sources, std::size_t count,
                    Type type, Op op, double scale) {
  for (std::size_t i = 0; i < count; ++i) {
    switch (type) {
      case Type::float32:
        reduce_floats<float>(out, sources, i, op, scale);
        break;
      case Type::float64:
        reduce_floats<double>(out, sources, i, op, scale);
        break;
      case Type::bfloat16:
        reduce_halves(out, sources, i, op, scale, kBfloat16);
        break;
      case Type::float16:
        reduce_halves(out, sources, i, op, scale, kFloat16);
        break;
      case Type::int32:
        reduce_integers<std::int32_t, std::uint32_t>(out, sources, i, op);
        break;
      case Type::int64:
        reduce_integers<std::int64_t, std::uint64_t>(out, sources, i, op);
        break;
    }
  }
}

std::string difference(const std::byte* found, const std::byte* expected, std::size_t count, Type type) {
  const std::size_t element = width(type);
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(found + i * element, expected + i * element, element) == 0) continue;
    if (is_nan(found, i, type) && is_nan(expected, i, type)) continue;
    std::uint64_t there = 0, wanted = 0;
    std::memcpy(&there, found + i * element, element);
    std::memcpy(&wanted, expected + i * element, element);
    char text[120];
    std::snprintf(text, sizeof(text), "element %zu of %zu is 0x%llx, expected 0x%llx", i, count,
                  static_cast<unsigned long long>(there), static_cast<unsigned long long>(wanted));
    return text;
  }
  return "";
}

}  // namespace dlscale::testing
