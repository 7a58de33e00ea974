#include "distance.hpp"

#include <algorithm>
#include <limits>

namespace dlscale {
namespace {

constexpr int kLaps = 3;  // in the first of which ranks come late

}  // namespace

double Distance::hop_seconds() {
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
  return rank_ == 0 ? best / size_ : 0;
}

}  // namespace dlscale
