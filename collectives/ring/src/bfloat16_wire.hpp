// An engine whose float32 sums and averages travel as bfloat16, and its memory of what rounding took away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "c_interface.hpp"
#include "engine.hpp"
#include "residual.hpp"

namespace dlscale {

// A *bucket* is a float32 buffer that comes again with every step and means the same gradients each time. It
// is known by a number, or by itself if it lies in memory of `Engine::share`; any other buffer may hold
// something else the next time, so nothing is kept of it.
class Bfloat16Wire {
 public:
  // The engine must outlive it.
  Bfloat16Wire(Engine& engine, bool error_feedback);
  Bfloat16Wire(const Bfloat16Wire&) = delete;
  Bfloat16Wire& operator=(const Bfloat16Wire&) = delete;

  // As `Engine::allreduce`; what is no sum or average of float32 travels as it is. A bucket that has changed
  // its length starts with a residual of zeros.
  void allreduce(std::byte* data, std::size_t count, Type type, Op op, std::optional<std::uint64_t> bucket);

  // What is kept, for a checkpoint. Not while an operation is under way in another thread.
  std::map<std::uint64_t, Residual>& residuals() { return residuals_; }

  // Of a DlscaleCollective; valid as long as this object.
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(&table_); }

  static constexpr std::uint64_t kNumNumbers = Engine::kNamesPerArray;

 private:
  static constexpr std::uint64_t kNumbered = std::uint64_t{1} << 63;  // in the keys of numbered buckets

  void forget_freed();
  Residual* residual_of(const std::byte* data, std::size_t count, std::optional<std::uint64_t> bucket);
  int call(void* data, std::size_t count, int type, int op, std::optional<std::uint64_t> bucket) noexcept;

  Engine& engine_;
  bool error_feedback_;
  std::mutex mutex_;
  std::map<std::uint64_t, Residual> residuals_;
  std::string error_;
  DlscaleCollective table_{};
};

}  // namespace dlscale
