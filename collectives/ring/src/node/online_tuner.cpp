#include "online_tuner.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace dlscale {
namespace {

constexpr std::size_t kTrialsPerVariant = 3;
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

OnlineTuner::OnlineTuner(NodeMemory& memory, int rank, int size, std::vector<CopyVariant> variants)
    : memory_(memory), rank_(rank), size_(size), variants_(std::move(variants)) {
  if (variants_.empty() || variants_.size() > Class().rate.size()) {
    throw std::invalid_argument("give 1 to " + std::to_string(Class().rate.size()) + " variants");
  }
}

const CopyVariant& OnlineTuner::next(std::size_t num_bytes, bool rounded) {
  if (variants_.size() == 1) return variants_.front();
  const std::uint64_t number = num_operations_;
  if (number >= 2) {
    double shortest = 0;
    for (int q = 0; q < size_; ++q) {
      const double seconds =
          1e-9 * static_cast<double>(memory_.control_block(q).durations.nanoseconds[(number - 2) % 4].load(
                     std::memory_order_relaxed));
      if (q == 0 || seconds < shortest) shortest = seconds;
    }
    learn(past_[(number - 2) % 4], shortest);
  }
  const std::size_t index = std::min(class_of(num_bytes), kNumSizes - 1) + (rounded ? kNumSizes : 0);
  const std::size_t variant = choose(classes_[index]);
  ++classes_[index].num_operations;
  past_[number % 4] = {index, variant, num_bytes};
  return variants_[variant];
}

void OnlineTuner::done(double seconds) {
  if (variants_.size() == 1) return;
  memory_.control_block(rank_).durations.nanoseconds[num_operations_ % 4].store(
      static_cast<std::uint64_t>(seconds * 1e9) + 1, std::memory_order_relaxed);
  ++num_operations_;
}

void OnlineTuner::learn(const Past& past, double seconds) {
  Class& c = classes_[past.size_class];
  const double rate = seconds / static_cast<double>(past.num_bytes);
  double& known = c.rate[past.variant];
  // A faster rate replaces the known one at once: the first touch of a buffer is no measure. A slower rate
  // counts in part and up to a bound, so that a single interruption changes nothing.
  known =
      known == 0 ? rate : std::min(rate, known + kWeightOfNew * (std::min(rate, kOutlier * known) - known));
  if (c.num_trials_left) {
    if (--c.num_trials_left == 0) {
      for (std::size_t m = 0; m < variants_.size(); ++m) {
        if (c.rate[m] != 0 && (c.rate[c.chosen] == 0 || c.rate[m] < c.rate[c.chosen])) c.chosen = m;
      }
      c.rate_when_chosen = c.rate[c.chosen];
    }
  } else if (past.variant == c.chosen && known < c.rate_when_chosen) {
    c.rate_when_chosen = known;
  } else if (past.variant == c.chosen && known > kMuchSlower * c.rate_when_chosen) {
    c.rate.fill(0);
    c.num_trials_left = kTrialsPerVariant * variants_.size();
  }
}

std::size_t OnlineTuner::choose(Class& c) const {
  if (c.num_operations % kRetryAfter == 0) {
    c.rate.fill(0);
    c.num_trials_left = kTrialsPerVariant * variants_.size();
  }
  if (c.num_trials_left) return c.num_operations % variants_.size();
  return c.chosen;
}

}  // namespace dlscale
