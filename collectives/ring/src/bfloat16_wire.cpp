#include "bfloat16_wire.hpp"

#include <cstdint>
#include <iterator>
#include <stdexcept>

namespace dlscale {

Bfloat16Wire::Bfloat16Wire(Engine& engine, bool error_feedback)
    : engine_(engine), error_feedback_(error_feedback) {
  table_.struct_bytes = sizeof(DlscaleCollective);
  table_.context = this;
  table_.allreduce = [](void* context, void* data, std::size_t count, int type, int op) {
    return static_cast<Bfloat16Wire*>(context)->call(data, count, type, op, std::nullopt);
  };
  table_.last_error = [](void* context) { return static_cast<Bfloat16Wire*>(context)->error_.c_str(); };
  table_.allreduce_bucket = [](void* context, void* data, std::size_t count, int type, int op,
                               std::uint64_t bucket) {
    return static_cast<Bfloat16Wire*>(context)->call(data, count, type, op, bucket);
  };
}

void Bfloat16Wire::allreduce(std::byte* data, std::size_t count, Type type, Op op,
                             std::optional<std::uint64_t> bucket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (type != Type::float32 || (op != Op::sum && op != Op::average)) {
    return engine_.allreduce(data, count, type, op);
  }
  engine_.allreduce_rounded(reinterpret_cast<float*>(data), count, op, residual_of(data, count, bucket));
}

Residual* Bfloat16Wire::residual_of(const std::byte* data, std::size_t count,
                                    std::optional<std::uint64_t> bucket) {
  if (bucket && *bucket >= kNumNumbers) {
    throw std::invalid_argument("bucket is " + std::to_string(*bucket) + "; give less than " +
                                std::to_string(kNumNumbers));
  }
  if (!error_feedback_ || count == 0 || engine_.topology().size == 1) return nullptr;
  const std::uint64_t name = engine_.name_of(data, count * sizeof(float));
  if (!bucket && name == 0) return nullptr;
  const std::uint64_t key = bucket ? kNumbered | name / kNumNumbers * kNumNumbers | *bucket : name;
  const auto known = residuals_.find(key);
  if (known != residuals_.end() && known->second.count() == count) return &known->second;
  residuals_.erase(key);
  forget_freed();
  return &residuals_.emplace(key, Residual(count)).first->second;
}

void Bfloat16Wire::forget_freed() {
  for (auto kept = residuals_.begin(); kept != residuals_.end();) {
    const std::uint64_t name = kept->first & ~kNumbered;
    const bool freed = name >= kNumNumbers && !engine_.is_shared(name);
    kept = freed ? residuals_.erase(kept) : std::next(kept);
  }
}

int Bfloat16Wire::call(void* data, std::size_t count, int type, int op,
                       std::optional<std::uint64_t> bucket) noexcept {
  try {
    if (type < 0 || type >= static_cast<int>(kNumTypes) || op < 0 || op > static_cast<int>(Op::max)) {
      throw std::invalid_argument("no such element type or operation");
    }
    allreduce(static_cast<std::byte*>(data), count, static_cast<Type>(type), static_cast<Op>(op), bucket);
    return 0;
  } catch (const std::exception& error) {
    error_ = error.what();
    return 1;
  }
}

}  // namespace dlscale
