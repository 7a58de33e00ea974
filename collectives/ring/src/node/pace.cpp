#include "pace.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace dlscale {
namespace {

constexpr std::size_t kTrialsPerManner = 3;
constexpr std::uint64_t kRetryAfter = 512;  // operations of a size class
constexpr double kMuchSlower = 1.45;
constexpr double kWeightOfNew = 0.4;
constexpr double kOutlier = 2.0;

std::size_t class_of(std::size_t num_bytes) {
  std::size_t power = 0;
  while (num_bytes >>= 1) ++power;
  return power;
}

}  // namespace

Pace::Pace(NodeMemory& memory, int rank, int size, std::vector<Manner> manners)
    : memory_(memory), rank_(rank), size_(size), manners_(std::move(manners)) {
  if (manners_.empty() || manners_.size() > Class().rate.size()) {
    throw std::invalid_argument("give 1 to " + std::to_string(Class().rate.size()) + " manners");
  }
}

const Manner& Pace::next(std::size_t num_bytes, bool rounded) {
  if (manners_.size() == 1) return manners_.front();
  const std::uint64_t number = num_operations_;
  if (number >= 2) {
    double shortest = 0;
    for (int q = 0; q < size_; ++q) {
      const double seconds =
          1e-9 * static_cast<double>(memory_.board(q).durations.nanoseconds[(number - 2) % 4].load(
                     std::memory_order_relaxed));
      if (q == 0 || seconds < shortest) shortest = seconds;
    }
    learn(past_[(number - 2) % 4], shortest);
  }
  const std::size_t index = std::min(class_of(num_bytes), kNumSizes - 1) + (rounded ? kNumSizes : 0);
  const std::size_t manner = choose(classes_[index]);
  ++classes_[index].num_operations;
  past_[number % 4] = {index, manner, num_bytes};
  return manners_[manner];
}

void Pace::done(double seconds) {
  if (manners_.size() == 1) return;
  memory_.board(rank_).durations.nanoseconds[num_operations_ % 4].store(
      static_cast<std::uint64_t>(seconds * 1e9) + 1, std::memory_order_relaxed);
  ++num_operations_;
}

void Pace::learn(const Past& past, double seconds) {
  Class& c = classes_[past.size_class];
  const double rate = seconds / static_cast<double>(past.num_bytes);
  double& known = c.rate[past.manner];
  // A faster one replaces what is known at once: the first touch of a buffer is no measure. A slower one
  // counts by a part and up to a bound, so that a single interruption changes nothing.
  known =
      known == 0 ? rate : std::min(rate, known + kWeightOfNew * (std::min(rate, kOutlier * known) - known));
  if (c.num_trials_left) {
    if (--c.num_trials_left == 0) {
      for (std::size_t m = 0; m < manners_.size(); ++m) {
        if (c.rate[m] != 0 && (c.rate[c.kept] == 0 || c.rate[m] < c.rate[c.kept])) c.kept = m;
      }
      c.rate_when_kept = c.rate[c.kept];
    }
  } else if (past.manner == c.kept && known < c.rate_when_kept) {
    c.rate_when_kept = known;
  } else if (past.manner == c.kept && known > kMuchSlower * c.rate_when_kept) {
    c.rate.fill(0);
    c.num_trials_left = kTrialsPerManner * manners_.size();
  }
}

std::size_t Pace::choose(Class& c) const {
  if (c.num_operations % kRetryAfter == 0) {
    c.rate.fill(0);
    c.num_trials_left = kTrialsPerManner * manners_.size();
  }
  if (c.num_trials_left) return c.num_operations % manners_.size();
  return c.kept;
}

}  // namespace dlscale
