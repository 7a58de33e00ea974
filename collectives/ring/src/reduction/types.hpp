// What is reduced and how, by the names that users give.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlscale {

enum class Type : std::uint8_t { float32, float64, bfloat16, float16, int32, int64 };
inline constexpr std::size_t kNumTypes = 6;

enum class Op : std::uint8_t { sum, average, min, max };

constexpr std::size_t width(Type type) {
  switch (type) {
    case Type::float64:
    case Type::int64:
      return 8;
    case Type::float32:
    case Type::int32:
      return 4;
    default:
      return 2;
  }
}

constexpr bool is_integer(Type type) { return type == Type::int32 || type == Type::int64; }

}  // namespace dlscale
