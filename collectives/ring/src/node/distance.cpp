#include "distance.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace dlscale {
namespace {

constexpr int kLaps = 5;  // in the first of which ranks come late; of the others the quickest counts

}  // namespace

double Distance::hop_seconds() {
  ControlBlock& first = memory_.control_block(0);
  Counter& own = memory_.control_block(rank_).laps;
  const int before = (rank_ + size_ - 1) % size_;
  Counter& others = memory_.control_block(before).laps;
  double best = std::numeric_limits<double>::infinity();
  for (int lap = 0; lap < kLaps; ++lap) {
    const std::uint64_t number = ++num_laps_;
    if (rank_ == 0) {
      const double begin = monotonic_seconds();
      waiting_.announce(&own, number);
      waiting_.until(&others, number, before);
      if (lap > 0) best = std::min(best, monotonic_seconds() - begin);
    } else {
      waiting_.until(&others, number, before);
      waiting_.announce(&own, number);
    }
  }
  const std::uint64_t told = ++num_laps_;
  if (rank_ == 0) {
    first.hop.store(static_cast<std::uint64_t>(best / size_ * 1e12), std::memory_order_relaxed);
    waiting_.announce(&own, told);
  } else {
    waiting_.until(&first.laps, told, 0);
  }
  // Stays until all ranks are in the first lap of the next time.
  return 1e-12 * static_cast<double>(first.hop.load(std::memory_order_relaxed));
}

}  // namespace dlscale
