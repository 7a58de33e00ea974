#include "online_tuner.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

namespace dlscale {
namespace {

// The last one finds its own traces in the place of the first, not those of another variant. Where messages
// rotate it takes longer until what they find is in the cache.
constexpr std::size_t kTrials = kNumSlots + 1, kTrialsOfRotating = 8;
constexpr std::uint64_t kRetryAfter = 512;  // operations of a size class
constexpr std::uint64_t kTimeEvery = 4;     // operations of a size class whose variant is chosen
constexpr double kMuchSlower = 1.45;
constexpr double kHopeless = 2.5;  // times as slow as the fastest: one trial is enough
constexpr double kWeightOfNew = 0.4;
constexpr double kOutlier = 2.0;
constexpr double kAboutAsFast = 1.05;
constexpr std::size_t kTrialsTakeLong = 8 * 1024 * 1024;  // of messages of up to so many bytes, or more

std::size_t index(Variant variant) { return static_cast<std::size_t>(variant); }

}  // namespace

const char* name_of(Variant variant) {
  constexpr std::array<const char*, kNumVariants> kNames = {"one-shot", "staged", "past the caches",
                                                            "single copy"};
  return kNames[index(variant)];
}

OnlineTuner::OnlineTuner(NodeMemory& memory, Waiting& waiting, int rank, int size,
                         const std::vector<Variant>& variants, std::size_t most_one_shot)
    : memory_(memory), waiting_(waiting), rank_(rank), size_(size) {
  for (auto& classes : classes_) {
    for (std::size_t i = 0; i < classes.size(); ++i) {
      Class& c = classes[i];
      c.most_bytes = std::size_t{1} << i;
      const bool one_shot = &classes == &classes_[0] && c.most_bytes <= most_one_shot;
      std::copy_if(variants.begin(), variants.end(), std::back_inserter(c.usable),
                   [&](Variant v) { return v != Variant::one_shot || one_shot; });
      c.chosen = c.usable.front();
    }
  }
}

Variant OnlineTuner::next(Operation operation, std::size_t num_bytes) {
  auto& classes = classes_[static_cast<std::size_t>(operation)];
  Class& c = *std::find_if(classes.begin(), std::prev(classes.end()),
                           [&](const Class& other) { return num_bytes <= other.most_bytes; });
  is_timed_ = false;
  if (c.usable.size() == 1) return c.chosen;
  const std::uint64_t number = c.num_operations++;
  if (number % kRetryAfter == 0) begin_trials(&c, false);
  is_timed_ = c.num_unknown || number % kTimeEvery == 0;
  if (!is_timed_) return c.chosen;
  if (num_timed_ >= 2) learn(num_timed_ - 2);
  Variant variant = c.chosen;
  if (c.num_unknown) {  // the last results come when two more operations have begun
    variant = c.num_begun < c.trials.size() ? c.trials[c.num_begun++] : first_of_the_fastest(c);
  }
  past_[num_timed_ % past_.size()] = {&c, variant, num_bytes};
  return variant;
}

void OnlineTuner::done(double begin, double end) {
  if (!is_timed_) return;
  ControlBlock& own = memory_.control_block(rank_);
  own.times.begin[num_timed_ % 4] = static_cast<std::uint64_t>(begin * 1e9);
  own.times.end[num_timed_ % 4] = static_cast<std::uint64_t>(end * 1e9);
  waiting_.announce(&own.timed, ++num_timed_);
}

// Seconds from the last rank's begin to the last one's end.
double OnlineTuner::duration(std::uint64_t number) {
  std::uint64_t begin = 0, end = 0;
  for (int q = 0; q < size_; ++q) {
    ControlBlock& block = memory_.control_block(q);
    waiting_.until(&block.timed, number + 1, q);
    begin = std::max(begin, block.times.begin[number % 4]);
    end = std::max(end, block.times.end[number % 4]);
  }
  return 1e-9 * static_cast<double>(end > begin ? end - begin : 1);
}

// One trial of each, and then the others. `all_alike`: also of those that took several times as long before.
void OnlineTuner::begin_trials(Class* c, bool all_alike) const {
  const std::size_t num_trials = c->most_bytes <= NodeMemory::kMostRotating ? kTrialsOfRotating : kTrials;
  const bool takes_long = c->most_bytes >= kTrialsTakeLong;
  c->trials = takes_long ? c->usable : std::vector<Variant>();
  for (const Variant v : c->usable) {
    const double slowdown = c->rates_of_choice[index(v)] / c->rates_of_choice[index(c->chosen)];
    const std::size_t wanted = slowdown > kHopeless && !all_alike ? 1 : num_trials;
    c->trials.insert(c->trials.end(), wanted - (takes_long ? 1 : 0), v);
  }
  c->rates.fill(0);
  c->num_unknown = c->trials.size();
  c->num_begun = 0;
  c->tried_since = num_timed_;
}

// Of messages that take long the fastest go on, and those that are several times as slow do not.
void OnlineTuner::drop_slow_trials(Class* c) {
  const auto to_come = c->trials.begin() + static_cast<std::ptrdiff_t>(c->num_begun);
  std::stable_sort(to_come, c->trials.end(),
                   [c](Variant v, Variant w) { return c->rates[index(v)] < c->rates[index(w)]; });
  const double limit = kHopeless * best_rate(*c);
  const auto kept =
      std::remove_if(to_come, c->trials.end(), [&](Variant v) { return c->rates[index(v)] > limit; });
  c->num_unknown -= static_cast<std::size_t>(c->trials.end() - kept);
  c->trials.erase(kept, c->trials.end());
}

void OnlineTuner::learn(std::uint64_t number) {
  const Past& past = past_[number % past_.size()];
  Class& c = *past.size_class;
  const double rate = duration(number) / static_cast<double>(past.num_bytes);
  if (number < c.tried_since) return;
  double& known = c.rates[index(past.variant)];
  // A faster rate replaces the known one at once: the first touch of a buffer is no measure. A slower rate
  // counts in part and up to a bound, so that a single interruption changes nothing.
  known =
      known == 0 ? rate : std::min(rate, known + kWeightOfNew * (std::min(rate, kOutlier * known) - known));
  if (c.num_unknown) {
    --c.num_unknown;
    if (c.most_bytes >= kTrialsTakeLong) drop_slow_trials(&c);
    if (c.num_unknown) return;
    c.chosen = first_of_the_fastest(c);
    c.rates_of_choice = c.rates;
  } else if (past.variant == c.chosen) {
    double& before = c.rates_of_choice[index(c.chosen)];
    if (known > kMuchSlower * before) return begin_trials(&c, true);
    before = std::min(before, known);
  }
}

double OnlineTuner::best_rate(const Class& c) {
  double best = 0;
  for (const double rate : c.rates) {
    if (rate != 0 && (best == 0 || rate < best)) best = rate;
  }
  return best;
}

Variant OnlineTuner::first_of_the_fastest(const Class& c) {
  const double limit = kAboutAsFast * best_rate(c);
  const auto found = std::find_if(c.usable.begin(), c.usable.end(), [&](Variant v) {
    return c.rates[index(v)] != 0 && c.rates[index(v)] <= limit;
  });
  return found == c.usable.end() ? c.chosen : *found;
}

std::vector<OnlineTuner::Choice> OnlineTuner::choices() const {
  std::vector<Choice> all;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    for (const Class& c : classes_[i]) {
      if (c.rates_of_choice[index(c.chosen)] == 0) continue;
      Choice choice{static_cast<Operation>(i), c.most_bytes, c.chosen, {}};
      for (const Variant v : c.usable) {
        if (const double rate = c.rates_of_choice[index(v)]) choice.seconds_per_byte.emplace_back(v, rate);
      }
      all.push_back(std::move(choice));
    }
  }
  return all;
}

}  // namespace dlscale
