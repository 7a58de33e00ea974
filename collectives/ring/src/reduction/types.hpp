// What is reduced and how, by the names that users give.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlscale {

enum class Operation : std::uint8_t { allreduce, reduce_scatter, allgather, broadcast, barrier };
inline constexpr std::size_t kNumOperations = 5;

enum class Type : std::uint8_t { float32, float64, bfloat16, float16, int32, int64 };
inline constexpr std::size_t kNumTypes = 6;

enum class Op : std::uint8_t { sum, average, min, max };
inline constexpr std::size_t kNumOps = 4;

constexpr const char* name_of(Operation operation) {
  constexpr const char* kNames[kNumOperations] = {"allreduce", "reduce_scatter", "allgather", "broadcast",
                                                  "barrier"};
  return kNames[static_cast<std::size_t>(operation)];
}

constexpr const char* name_of(Type type) {
  constexpr const char* kNames[kNumTypes] = {"float32", "float64", "bfloat16", "float16", "int32", "int64"};
  return kNames[static_cast<std::size_t>(type)];
}

constexpr const char* name_of(Op op) {
  constexpr const char* kNames[kNumOps] = {"sum", "average", "min", "max"};
  return kNames[static_cast<std::size_t>(op)];
}

constexpr bool is_integer(Type type) { return type == Type::int32 || type == Type::int64; }

// Bytes of an element.
constexpr std::size_t width(Type type) {
  if (type == Type::float64 || type == Type::int64) return 8;
  return type == Type::float32 || type == Type::int32 ? 4 : 2;
}

}  // namespace dlscale
