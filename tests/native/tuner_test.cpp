// What the tuner chooses, when every variant's time is given: one rank, and no message moves.
//
//   tuner_test
#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "complaints.hpp"
#include "node/online_tuner.hpp"
#include "threads.hpp"

using namespace dlscale;
using namespace dlscale::testing;

namespace {

Complaints g_complaints;

constexpr std::size_t kMiB = std::size_t{1} << 20;

using Rates = std::map<Variant, double>;  // nanoseconds per byte

const Rates kNear{{Variant::staged, 0.1}, {Variant::streamed, 0.13}, {Variant::single_copy, 0.3}};
const Rates kFar{{Variant::staged, 0.4}, {Variant::streamed, 0.5}, {Variant::single_copy, 0.2}};

// A tuner, and what it made of operations that took as long as they were said to.
class Tuned {
 public:
  Tuned()
      : bootstrap_(meeting_, 0),
        memory_(bootstrap_, 256 * 1024, false),
        watch_(bootstrap_),
        waiting_(watch_, &memory_.control_block(0).failure, memory_.waits_for(1), 0, {0}, false, 10),
        tuner_(memory_, waiting_, 0, 1,
               {Variant::one_shot, Variant::staged, Variant::streamed, Variant::single_copy}, 4096) {}

  // So many allreduces of a size; the variants that were used, and in `last` the last one.
  std::set<Variant> run(std::size_t num_bytes, int times, const Rates& rates) {
    std::set<Variant> used;
    for (int i = 0; i < times; ++i) {
      last = tuner_.next(Operation::allreduce, num_bytes);
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
      if (choice.up_to_bytes == num_bytes) return name_of(choice.variant);
    }
    return "";
  }

  Variant last{};

 private:
  Meeting meeting_{1};
  ThreadBootstrap bootstrap_;
  NodeMemory memory_;
  Watch watch_;
  Waiting waiting_;
  OnlineTuner tuner_;
  double now_ = 1000;
};

void expect(bool right, const std::string& what) { g_complaints.add_if(!right, what); }

void expect_last(const Tuned& tuned, Variant variant, const std::string& when) {
  expect(tuned.last == variant, when + ": chose " + name_of(tuned.last));
}

void the_fastest_is_chosen() {
  Tuned tuned;
  expect(tuned.run(kMiB, 30, kNear).size() == 3, "not all variants were tried");
  expect_last(tuned, Variant::staged, "near");
  expect(tuned.chosen(kMiB) == name_of(tuned.last), "choices: " + tuned.chosen(kMiB));
  expect(tuned.chosen(2 * kMiB).empty(), "a choice for what never came");
}

void of_those_about_as_fast_the_first_is_chosen() {
  Tuned tuned;
  Rates rates = kNear;
  rates[Variant::streamed] = 0.97 * rates[Variant::staged];
  tuned.run(kMiB, 30, rates);
  expect_last(tuned, Variant::staged, "about as fast");
}

// Each takes milliseconds: what took five times as long as another is not tried once more.
void of_large_messages_slow_variants_are_tried_once() {
  Tuned tuned;
  const Rates rates{{Variant::staged, 1.0}, {Variant::streamed, 1.0}, {Variant::single_copy, 0.2}};
  int num_slow = 0;
  for (int i = 0; i < 30; ++i) {
    tuned.run(32 * kMiB, 1, rates);
    num_slow += tuned.last != Variant::single_copy;
  }
  expect(num_slow == 2, "slow variants of 32 MiB were tried " + std::to_string(num_slow) + " times");
  expect(tuned.chosen(32 * kMiB) == name_of(Variant::single_copy), "large: chose " + tuned.chosen(32 * kMiB));
}

void all_are_tried_again_when_the_chosen_one_becomes_slow() {
  Tuned tuned;
  tuned.run(kMiB, 30, kNear);
  tuned.run(kMiB, 60, kFar);
  expect_last(tuned, Variant::single_copy, "moved away");
  tuned.run(kMiB, 512, kNear);  // it is as fast as before: found out when all are tried again
  tuned.run(kMiB, 60, kNear);
  expect_last(tuned, Variant::staged, "moved back");
}

// What was several times as slow as the fastest is tried again, but only once.
void hopeless_variants_are_seldom_tried_again() {
  Tuned tuned;
  tuned.run(kMiB, 512, kNear);
  int num_hopeless = 0;
  for (int i = 0; i < 512; ++i) {
    tuned.run(kMiB, 1, kNear);
    num_hopeless += tuned.last == Variant::single_copy;
  }
  expect(num_hopeless == 1, "a hopeless variant was tried " + std::to_string(num_hopeless) + " times again");
}

void one_interruption_changes_nothing() {
  Tuned tuned;
  tuned.run(kMiB, 32, kNear);
  Rates held_up = kNear;
  held_up[Variant::staged] = 100;
  tuned.run(kMiB, 1, held_up);  // every fourth is timed, this one too
  expect(tuned.run(kMiB, 40, kNear).size() == 1, "one interruption made it try all again");
}

void choices_hold_while_all_are_tried_again() {
  Tuned tuned;
  tuned.run(kMiB, 512, kNear);
  for (int i = 0; i < 8; ++i) {
    tuned.run(kMiB, 1, kNear);
    expect(tuned.chosen(kMiB) == name_of(Variant::staged), "while trying: " + tuned.chosen(kMiB));
  }
}

}  // namespace

int main() {
  the_fastest_is_chosen();
  of_those_about_as_fast_the_first_is_chosen();
  of_large_messages_slow_variants_are_tried_once();
  all_are_tried_again_when_the_chosen_one_becomes_slow();
  hopeless_variants_are_seldom_tried_again();
  one_interruption_changes_nothing();
  choices_hold_while_all_are_tried_again();
  return g_complaints.verdict("what the tuner chooses");
}
