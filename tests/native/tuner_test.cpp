// What the tuner chooses, when every variant's time is given: one rank, and no message moves.
//
//   tuner_test
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "complaints.hpp"
#include "node/online_tuner.hpp"
#include "threads.hpp"

using namespace dlscale;
using namespace dlscale::testing;

namespace {

Complaints g_complaints;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kChunk = 256 * 1024;

const CopyVariant kAhead{kChunk, true, false};
const CopyVariant kPast{kChunk, true, true};
const CopyVariant kSingle{kChunk, false, false, Way::single_copy};
using Rates = std::map<std::string, double>;  // nanoseconds per byte, by in_words

const Rates kNear{{in_words(kAhead), 0.1}, {in_words(kPast), 0.13}, {in_words(kSingle), 0.3}};
const Rates kFar{{in_words(kAhead), 0.4}, {in_words(kPast), 0.5}, {in_words(kSingle), 0.2}};

// A tuner, and what it made of operations that took as long as they were said to.
class Tuned {
 public:
  Tuned()
      : bootstrap_(meeting_, 0),
        memory_(bootstrap_, 4096, kChunk, {}),
        watch_(bootstrap_),
        waiting_(watch_, &memory_.control_block(0).failure, memory_.waits_for(1), 0, {0}, false, 10),
        tuner_(memory_, waiting_, 0, 1, {kAhead, kPast, kSingle}, 4096, [this] { return next_hop(); }) {}

  // So many allreduces of a size; the variants that were used, and in `last` the last one.
  std::set<std::string> run(std::size_t num_bytes, int times, const Rates& rates) {
    std::set<std::string> used;
    for (int i = 0; i < times; ++i) {
      last = in_words(tuner_.next(Timed::allreduce, num_bytes));
      used.insert(last);
      const double begin = now_;
      now_ += 1e-9 * rates.at(last) * static_cast<double>(num_bytes);
      tuner_.done(begin, now_);
    }
    return used;
  }

  // The variant that choices() has for a size; empty if none is chosen.
  std::string chosen(std::size_t num_bytes) const {
    for (const OnlineTuner::Choice& choice : tuner_.choices()) {
      if (choice.up_to_bytes == num_bytes) return in_words(choice.variant);
    }
    return "";
  }

  std::string last;
  double hop = 50e-9;          // seconds
  double interrupted_hop = 0;  // the next one, if it is not 0

 private:
  double next_hop() { return interrupted_hop != 0 ? std::exchange(interrupted_hop, 0) : hop; }

  Meeting meeting_{1};
  ThreadBootstrap bootstrap_;
  NodeMemory memory_;
  Watch watch_;
  Waiting waiting_;
  OnlineTuner tuner_;
  double now_ = 1000;
};

void expect(bool right, const std::string& what) { g_complaints.add_if(!right, what); }

void the_fastest_is_chosen() {
  Tuned tuned;
  expect(tuned.run(kMiB, 30, kNear).size() == 3, "not all variants were tried");
  expect(tuned.last == in_words(kAhead), "near: chose " + tuned.last);
  expect(tuned.chosen(kMiB) == tuned.last, "choices: " + tuned.chosen(kMiB));
  expect(tuned.chosen(2 * kMiB).empty(), "a choice for what never came");
}

void of_those_about_as_fast_the_first_is_chosen() {
  Tuned tuned;
  Rates rates = kNear;
  rates[in_words(kPast)] = 0.97 * rates[in_words(kAhead)];
  tuned.run(kMiB, 30, rates);
  expect(tuned.last == in_words(kAhead), "about as fast: chose " + tuned.last);
}

// Each takes milliseconds: what took five times as long as another is not tried once more.
void of_large_messages_slow_variants_are_tried_once() {
  Tuned tuned;
  const Rates rates{{in_words(kAhead), 1.0}, {in_words(kPast), 1.0}, {in_words(kSingle), 0.2}};
  int num_slow = 0;
  for (int i = 0; i < 30; ++i) {
    tuned.run(32 * kMiB, 1, rates);
    num_slow += tuned.last != in_words(kSingle);
  }
  expect(num_slow == 2, "slow variants of 32 MiB were tried " + std::to_string(num_slow) + " times");
  expect(tuned.chosen(32 * kMiB) == in_words(kSingle), "large: chose " + tuned.chosen(32 * kMiB));
}

// Single copies are three times as slow near, and so left out at first, but the CPUs have moved since.
void what_was_left_out_is_tried_once_the_rest_is_slow() {
  Tuned tuned;
  tuned.run(kMiB, 30, kNear);
  expect(tuned.run(2 * kMiB, 30, kNear).count(in_words(kSingle)) == 0, "near: what was left out was tried");
  tuned.run(4 * kMiB, 30, kFar);
  expect(tuned.last == in_words(kSingle), "far: chose " + tuned.last);
}

void all_are_tried_again_when_the_chosen_one_becomes_slow() {
  Tuned tuned;
  tuned.run(kMiB, 30, kNear);
  tuned.run(kMiB, 60, kFar);
  expect(tuned.last == in_words(kSingle), "moved away: chose " + tuned.last);
  tuned.run(kMiB, 1024, kNear);
  tuned.run(kMiB, 60, kNear);
  expect(tuned.last == in_words(kAhead), "moved back: chose " + tuned.last);
}

// Each time the CPUs are moved away and back, what was found there before is used: nothing is tried again.
void near_and_far_are_kept_apart() {
  Tuned tuned;
  for (int round = 0; round < 4; ++round) {
    for (const bool far : {false, true}) {
      tuned.hop = far ? 250e-9 : 80e-9 + 5e-9 * round;
      const std::set<std::string> used = tuned.run(kMiB, round == 0 ? 60 : 20, far ? kFar : kNear);
      const std::string best = in_words(far ? kSingle : kAhead);
      expect(tuned.last == best, std::string(far ? "far" : "near") + ": chose " + tuned.last);
      expect(tuned.chosen(kMiB) == best, "choices: " + tuned.chosen(kMiB));
      // A look every second operation of 1 MiB.
      expect(round == 0 || used.size() <= 2, "what was known was tried again");
    }
  }
}

void what_began_far_is_not_taken_for_near() {
  Tuned tuned;
  tuned.hop = 180e-9;
  tuned.run(kMiB, 30, kFar);
  expect(tuned.last == in_words(kSingle), "began far: chose " + tuned.last);
  tuned.hop = 85e-9;
  tuned.run(kMiB, 30, kNear);
  expect(tuned.last == in_words(kAhead), "then near: chose " + tuned.last);
  tuned.hop = 250e-9;
  expect(tuned.run(kMiB, 30, kFar).size() <= 2, "far again: what was known was tried again");
  expect(tuned.last == in_words(kSingle), "far again: chose " + tuned.last);
}

void one_long_hop_changes_nothing() {
  Tuned tuned;
  tuned.hop = 85e-9;
  tuned.run(kMiB, 32, kNear);
  tuned.interrupted_hop = 5e-6;
  expect(tuned.run(kMiB, 40, kNear).size() == 1, "one long hop made it try all again");
  expect(tuned.interrupted_hop == 0, "the distance was not looked at");
}

void one_interruption_changes_nothing() {
  Tuned tuned;
  tuned.run(kMiB, 32, kNear);
  Rates held_up = kNear;
  held_up[in_words(kAhead)] = 100;
  tuned.run(kMiB, 1, held_up);  // every fourth is timed, this one too
  expect(tuned.run(kMiB, 40, kNear).size() == 1, "one interruption made it try all again");
}

void choices_hold_while_all_are_tried_again() {
  Tuned tuned;
  tuned.run(kMiB, 1024, kNear);
  for (int i = 0; i < 12; ++i) {
    tuned.run(kMiB, 1, kNear);
    expect(tuned.chosen(kMiB) == in_words(kAhead), "while trying: " + tuned.chosen(kMiB));
  }
}

}  // namespace

int main() {
  the_fastest_is_chosen();
  of_those_about_as_fast_the_first_is_chosen();
  of_large_messages_slow_variants_are_tried_once();
  what_was_left_out_is_tried_once_the_rest_is_slow();
  all_are_tried_again_when_the_chosen_one_becomes_slow();
  near_and_far_are_kept_apart();
  what_began_far_is_not_taken_for_near();
  one_long_hop_changes_nothing();
  one_interruption_changes_nothing();
  choices_hold_while_all_are_tried_again();
  return g_complaints.verdict("what the tuner chooses");
}
