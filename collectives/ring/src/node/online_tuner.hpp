// The variants by which a node moves a message, and a tuner that finds the fastest while the program runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "control_block.hpp"
#include "waiting.hpp"

namespace dlscale {

// All give the same bits. Which is fastest depends on the size and on how far apart the cores' caches are.
enum class Variant : std::uint8_t {
  one_shot,     // every rank publishes everything and reduces everything: see Staged; allreduce only
  staged,       // slices pass through shared memory, in the caches: see Staged
  streamed,     // likewise, but past the caches: far cores need not fetch each other's dirty lines
  single_copy,  // the kernel copies between the ranks' own memory: see SingleCopy
};
inline constexpr std::size_t kNumVariants = 4;
const char* name_of(Variant variant);

// Tries every variant a few times in a row at the first operations of a size class (the caches then hold what
// the variant itself leaves there), uses the fastest, and tries again now and then, and at once when the
// chosen variant becomes much slower: virtual machines move CPUs while a program runs. Of variants that are
// about as fast the first is chosen, so that the next run chooses alike.
//
// All ranks must choose alike without extra messages. Each announces when the timed operation n began and
// ended; n + 2 begins when all have announced n, which they have unless one is far behind. So a decision at n
// + 2 rests on operations up to n, the same numbers on all ranks. An operation takes from the last rank's
// begin to the last rank's end: neither waiting for a straggler is counted nor leaving early, as the root of
// a broadcast may.
//
// Reuse: the times of n are written again by `done` of n + 4. Before that `next` waited until all had timed n
// + 2, and their `next` of n + 2 had read those of n.
class OnlineTuner {
 public:
  // Messages larger than `most_one_shot` do not go one-shot. `variants` has staged or streamed.
  OnlineTuner(NodeMemory& memory, Waiting& waiting, int rank, int size, const std::vector<Variant>& variants,
              std::size_t most_one_shot);

  // The variant of the next operation, on `num_bytes` per rank; the same on all ranks.
  Variant next(Operation operation, std::size_t num_bytes);
  // When that operation began and ended on this rank: monotonic_seconds, one clock for the node.
  void done(double begin, double end);

  struct Choice {
    Operation operation;
    std::size_t up_to_bytes;  // more than half of it
    Variant variant;
    std::vector<std::pair<Variant, double>> seconds_per_byte;  // of all that were tried
  };
  std::vector<Choice> choices() const;

 private:
  using Rates = std::array<double, kNumVariants>;  // seconds per byte; 0 if unknown
  struct Class {
    std::vector<Variant> usable;
    std::size_t most_bytes = 0;
    Variant chosen{};
    Rates rates{};            // recent ones
    Rates rates_of_choice{};  // those that the choice rests on
    std::vector<Variant> trials;
    std::size_t num_begun = 0;      // of the trials
    std::size_t num_unknown = 0;    // trials whose rates are not known yet
    std::uint64_t tried_since = 0;  // this timed operation
    std::uint64_t num_operations = 0;
  };
  struct Past {
    Class* size_class = nullptr;
    Variant variant{};
    std::size_t num_bytes = 0;
  };

  double duration(std::uint64_t number);
  void learn(std::uint64_t number);
  void begin_trials(Class* c, bool all_alike) const;
  static void drop_slow_trials(Class* c);
  static double best_rate(const Class& c);
  static Variant first_of_the_fastest(const Class& c);

  NodeMemory& memory_;
  Waiting& waiting_;
  int rank_;
  int size_;
  std::array<std::array<Class, 48>, kNumOperations - 1>
      classes_{};  // by operation, and size: of up to 2^i bytes
  std::array<Past, 4> past_{};
  std::uint64_t num_timed_ = 0;
  bool is_timed_ = false;  // the operation under way
};

}  // namespace dlscale
