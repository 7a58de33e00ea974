#include "online_tuner.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace dlscale {
namespace {

// The last one finds its own traces in the place of the first, not those of another variant. One that rotates
// comes into memory that nobody has used for long, and soon finds some that is in the cache again.
constexpr std::size_t kTrials = NodeMemory::kNumSlots + 1, kTrialsOfRotating = 8;
constexpr std::uint64_t kRetryAfter = 1024;  // operations of a size class
constexpr std::uint64_t kLookEvery = 4;      // operations of a size class whose variant is chosen
constexpr std::uint64_t kRetryAllAfter = 8 * kRetryAfter;
constexpr double kMuchSlower = 1.45;
constexpr double kHopeless = 2.5;  // times as slow as the chosen one
constexpr double kWeightOfNew = 0.4;
constexpr double kOutlier = 2.0;
constexpr double kAboutAsFast = 1.05;
constexpr std::size_t kTrialsTakeLong = 8 * 1024 * 1024;  // of messages of up to so many bytes, or more
constexpr std::size_t kAlike = 2;  // size classes that are apart by no more have similar rates
constexpr std::size_t kBytesPerLook = 2 * 1024 * 1024;  // a look takes 1 to 2 us
constexpr double kFar = 1.6;                            // times the shortest hop

// Class c has the messages of up to 2^c bytes.
std::size_t class_of(std::size_t num_bytes) {
  std::size_t power = 0;
  while (num_bytes > std::size_t{1} << power) ++power;
  return power;
}

}  // namespace

OnlineTuner::OnlineTuner(NodeMemory& memory, Waiting& waiting, int rank, int size,
                         std::vector<CopyVariant> variants, std::size_t one_shot_bytes,
                         std::function<double()> hop_seconds)
    : memory_(memory),
      waiting_(waiting),
      rank_(rank),
      size_(size),
      variants_(std::move(variants)),
      hop_seconds_(std::move(hop_seconds)) {
  const bool stages = std::any_of(variants_.begin(), variants_.end(),
                                  [](const CopyVariant& v) { return v.way == Way::staged; });
  if (!stages || variants_.size() > Class().rate.size()) {
    throw std::invalid_argument("give 1 to " + std::to_string(Class().rate.size()) +
                                " variants, one of them staged");
  }
  for (Classes& classes : classes_) {
    for (std::size_t kind = 0; kind < kNumTimed; ++kind) {
      for (std::size_t c = 0; c < classes[kind].size(); ++c) {
        Class& made = classes[kind][c];
        made.usable = usable(static_cast<Timed>(kind), std::size_t{1} << c, one_shot_bytes);
        made.chosen = made.usable.front();
        made.takes_long = std::size_t{1} << c >= kTrialsTakeLong;
      }
    }
  }
}

std::vector<std::size_t> OnlineTuner::usable(Timed kind, std::size_t most_bytes,
                                             std::size_t one_shot_bytes) const {
  std::vector<std::size_t> all;
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    const Way way = variants_[v].way;
    if (way != Way::staged && kind == Timed::rounded) continue;
    if (way == Way::one_shot && most_bytes > one_shot_bytes) continue;
    if (most_bytes < variants_[v].least_bytes || most_bytes > variants_[v].most_bytes) continue;
    all.push_back(v);
  }
  return all;
}

const CopyVariant& OnlineTuner::next(Timed kind, std::size_t num_bytes) {
  // A broadcast's root does not wait for the others.
  if (hop_seconds_ && kind != Timed::broadcast) {
    bytes_since_look_ += num_bytes;
    if (bytes_since_look_ >= kBytesPerLook) look_at_distance();
  }
  auto& classes = classes_now()[static_cast<std::size_t>(kind)];
  const std::size_t index = std::min(class_of(num_bytes), classes.size() - 1);
  Class& c = classes[index];
  if (c.usable.size() == 1) {
    is_timed_ = false;
    return variants_[c.usable.front()];
  }
  const std::uint64_t number = c.num_operations++;
  if (number % kRetryAfter == 0) {
    const std::vector<std::size_t> candidates = number ? hopeful(c, number) : promising(kind, index);
    begin_trials(&c, candidates);
    c.left_out = number == 0 && candidates.size() < c.usable.size();
  }
  is_timed_ = c.num_trials_left || number % kLookEvery == 0;
  if (!is_timed_) return variants_[c.chosen];
  if (num_timed_ >= 2) learn(num_timed_ - 2);
  std::size_t variant = c.chosen;
  if (c.num_trials_left) {  // the last results come when two more operations have begun
    variant = c.num_trials < c.trials.size() ? c.trials[c.num_trials++] : first_of_the_fastest(c);
  }
  past_[num_timed_ % 4] = {&c, variant, num_bytes};
  return variants_[variant];
}

void OnlineTuner::done(double begin, double end) {
  if (!is_timed_) return;
  ControlBlock& own = memory_.control_block(rank_);
  const auto note = [&](std::atomic<std::uint64_t>* times, double seconds) {
    times[num_timed_ % 4].store(static_cast<std::uint64_t>(seconds * 1e9), std::memory_order_relaxed);
  };
  note(own.times.begin, begin);
  note(own.times.end, end);
  waiting_.announce(&own.timed, ++num_timed_);
}

// Seconds from the last rank's begin to the last one's end. Four places suffice: who times n + 2 knows that
// all have timed n.
double OnlineTuner::duration(std::uint64_t number) {
  std::uint64_t begin = 0, end = 0;
  for (int q = 0; q < size_; ++q) {
    ControlBlock& block = memory_.control_block(q);
    waiting_.until(&block.timed, number + 1, q);
    begin = std::max(begin, block.times.begin[number % 4].load(std::memory_order_relaxed));
    end = std::max(end, block.times.end[number % 4].load(std::memory_order_relaxed));
  }
  return 1e-9 * static_cast<double>(end > begin ? end - begin : 1);
}

void OnlineTuner::begin_trials(Class* c, const std::vector<std::size_t>& candidates) const {
  c->rate.fill(0);
  c->num_tried.fill(0);
  c->trials = c->takes_long ? candidates : std::vector<std::size_t>();
  for (const std::size_t v : candidates) {
    const std::size_t all = variants_[v].rotates ? kTrialsOfRotating : kTrials;
    c->trials.insert(c->trials.end(), all - (c->takes_long ? 1 : 0), v);
  }
  c->num_trials_left = c->trials.size();
  c->num_trials = 0;
  c->tried_since = num_timed_;
  c->left_out = false;
}

// The fastest go on, and those that are much slower than they are no further.
void OnlineTuner::reconsider_trials(Class* c) {
  const auto to_come = c->trials.begin() + static_cast<std::ptrdiff_t>(c->num_trials);
  std::stable_sort(to_come, c->trials.end(),
                   [c](std::size_t v, std::size_t w) { return c->rate[v] < c->rate[w]; });
  const double best = best_rate(*c);
  const auto is_much_slower = [&](std::size_t v) {
    return c->rate[v] > (c->num_tried[v] == 1 ? kHopeless : kMuchSlower) * best;
  };
  const auto kept = std::remove_if(to_come, c->trials.end(), is_much_slower);
  c->num_trials_left -= static_cast<std::size_t>(c->trials.end() - kept);
  c->trials.erase(kept, c->trials.end());
}

// All but those that are much slower in the nearest class that is known.
std::vector<std::size_t> OnlineTuner::promising(Timed kind, std::size_t size_class) {
  auto& classes = classes_now()[static_cast<std::size_t>(kind)];
  Class& c = classes[size_class];
  for (std::size_t distance = 1; distance <= kAlike; ++distance) {
    for (const std::size_t other : {size_class - distance, size_class + distance}) {
      if (other >= classes.size() || !is_chosen(classes[other])) continue;
      c.slowdown = classes[other].slowdown;
      c.rate_nearby = classes[other].rate_when_chosen[classes[other].chosen];
      std::vector<std::size_t> all;
      for (const std::size_t v : c.usable) {
        if (c.slowdown[v] <= kMuchSlower) all.push_back(v);
      }
      return all.empty() ? c.usable : all;
    }
  }
  return c.usable;
}

// What is worth another trial: seldom what took several times as long.
std::vector<std::size_t> OnlineTuner::hopeful(const Class& c, std::uint64_t num_operations) {
  if (num_operations % kRetryAllAfter == 0) return c.usable;
  std::vector<std::size_t> all;
  for (const std::size_t v : c.usable) {
    if (c.slowdown[v] <= kHopeless) all.push_back(v);
  }
  return all;
}

void OnlineTuner::learn(std::uint64_t number) {
  const Past& past = past_[number % 4];
  Class& c = *past.size_class;
  const double rate = duration(number) / static_cast<double>(past.num_bytes);
  if (number < c.tried_since) return;  // no trial
  double& known = c.rate[past.variant];
  // A faster rate replaces the known one at once: the first touch of a buffer is no measure. A slower rate
  // counts in part and up to a bound, so that a single interruption changes nothing.
  known =
      known == 0 ? rate : std::min(rate, known + kWeightOfNew * (std::min(rate, kOutlier * known) - known));
  if (c.num_trials_left) {
    ++c.num_tried[past.variant];
    --c.num_trials_left;
    if (c.takes_long) reconsider_trials(&c);
    if (c.num_trials_left == 0) {
      c.chosen = first_of_the_fastest(c);
      c.rate_when_chosen = c.rate;
      for (const std::size_t v : c.usable) {
        if (c.rate[v] != 0) c.slowdown[v] = c.rate[v] / c.rate[c.chosen];
      }
      // The distance between the caches may have changed since: what was left out may be fastest now.
      if (c.left_out && c.rate[c.chosen] > kMuchSlower * c.rate_nearby) begin_trials(&c, c.usable);
    }
    return;
  }
  if (past.variant != c.chosen) return;
  double& before = c.rate_when_chosen[c.chosen];
  if (known > kMuchSlower * before) return begin_trials(&c, c.usable);
  before = std::min(before, known);
}

// Which classes count from now on. A hop that is interrupted is long, too: a change must be seen twice.
void OnlineTuner::look_at_distance() {
  bytes_since_look_ = 0;
  for (int looks = 0; looks < 2; ++looks) {
    const double hop = hop_seconds_();
    if (least_hop_ > kFar * hop) near_ = 1 - near_;  // what was taken for near was not
    if (least_hop_ == 0 || hop < least_hop_) least_hop_ = hop;
    const bool far = hop > kFar * least_hop_;
    if (far == is_far_) return;
    if (looks == 1) is_far_ = far;
  }
}

double OnlineTuner::best_rate(const Class& c) {
  double best = 0;
  for (const std::size_t v : c.usable) {
    if (c.rate[v] != 0 && (best == 0 || c.rate[v] < best)) best = c.rate[v];
  }
  return best;
}

std::size_t OnlineTuner::first_of_the_fastest(const Class& c) {
  const double best = best_rate(c);
  for (const std::size_t v : c.usable) {
    if (c.rate[v] != 0 && c.rate[v] <= kAboutAsFast * best) return v;
  }
  return c.chosen;
}

std::vector<OnlineTuner::Choice> OnlineTuner::choices() const {
  std::vector<Choice> all;
  for (std::size_t kind = 0; kind < kNumTimed; ++kind) {
    for (std::size_t c = 0; c < classes_now()[kind].size(); ++c) {
      const Class& known = classes_now()[kind][c];
      if (!is_chosen(known)) continue;
      Choice choice{static_cast<Timed>(kind), std::size_t{1} << c, variants_[known.chosen], {}};
      for (const std::size_t v : known.usable) {
        const double rate = known.rate_when_chosen[v];
        if (rate != 0) choice.seconds_per_byte.emplace_back(variants_[v], rate);
      }
      all.push_back(std::move(choice));
    }
  }
  return all;
}

}  // namespace dlscale
