// Finds, while the program runs, which variant of moving large messages is fastest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "control_block.hpp"
#include "variant.hpp"

namespace dlscale {

// What is timed apart from each other.
enum class Timed { allreduce, rounded, reduce_scatter, allgather, broadcast };
constexpr std::size_t kNumTimed = 5;

// Tries every variant a few times in a row at the first operations of a size class (what the caches hold is
// then what the variant itself leaves there), then uses the fastest, tries the others again now and then, and
// at once when the chosen variant becomes much slower: on virtual machines the distance between two caches
// changes while a program runs. Where that distance is measured, what was found out near is not used far, and
// not lost either. What was much slower for messages of about this size is left out at first, unless the
// others are much slower now than they were there. Of variants that are about as fast the first is chosen, so
// that the choice is the same in the next run.
//
// All ranks must choose alike without extra messages. Each announces when the timed operation n began and
// ended; n + 2 begins when all have announced n, which they have unless one is far behind. So a decision at n
// + 2 rests on operations up to n, the same numbers on all ranks. An operation takes from the last rank's
// begin to the last rank's end: waiting for a rank that comes late is not counted, and neither is leaving
// early, as the root of a broadcast may.
class OnlineTuner {
 public:
  // `one_shot_bytes`: the largest message that can go by Way::one_shot. `hop_seconds`: Distance's, or empty;
  // called by all ranks before some operations, but no broadcasts.
  OnlineTuner(NodeMemory& memory, Waiting& waiting, int rank, int size, std::vector<CopyVariant> variants,
              std::size_t one_shot_bytes, std::function<double()> hop_seconds);

  // The variant of the next operation, on `num_bytes` per rank; the same on all ranks.
  const CopyVariant& next(Timed kind, std::size_t num_bytes);
  // When that operation began and ended on this rank: monotonic_seconds, a clock that the node's ranks have
  // in common.
  void done(double begin, double end);

  // What was found out so far at the present distance, for people.
  struct Choice {
    Timed kind;
    std::size_t up_to_bytes;  // more than half of it
    CopyVariant variant;
    std::vector<std::pair<CopyVariant, double>> seconds_per_byte;  // of all that were tried
  };
  std::vector<Choice> choices() const;

 private:
  struct Class {
    std::array<double, 8> rate{};  // seconds per byte of each variant, recently; 0 if not tried
    // How much slower than the fastest each is, there or in a class nearby; 0 if unknown.
    std::array<double, 8> slowdown{};
    double rate_nearby = 0;           // of the variant chosen there, where others are left out at first
    std::vector<std::size_t> usable;  // variants
    // Of those that are tried, each several times in a row; where that takes long, after one of each.
    std::vector<std::size_t> trials;
    bool takes_long = false;
    std::array<std::size_t, 8> num_tried{};  // trials of each whose rates are known
    bool left_out = false;                   // whether some are not
    std::size_t chosen = 0;
    std::array<double, 8> rate_when_chosen{};  // on which the choice rests; 0 if not tried
    std::uint64_t num_operations = 0;
    std::size_t num_trials_left = 0;
    std::size_t num_trials = 0;     // begun
    std::uint64_t tried_since = 0;  // this timed operation
  };
  struct Past {
    Class* size_class = nullptr;
    std::size_t variant = 0;
    std::size_t num_bytes = 0;
  };

  using Classes = std::array<std::array<Class, 48>, kNumTimed>;  // by kind, and size: of up to 2^i bytes

  std::vector<std::size_t> usable(Timed kind, std::size_t most_bytes, std::size_t one_shot_bytes) const;
  double duration(std::uint64_t number);
  void learn(std::uint64_t number);
  Classes& classes_now() { return classes_[is_far_ ? 1 - near_ : near_]; }
  const Classes& classes_now() const { return classes_[is_far_ ? 1 - near_ : near_]; }
  void look_at_distance();
  void begin_trials(Class* size_class, const std::vector<std::size_t>& candidates) const;
  static std::vector<std::size_t> hopeful(const Class& c, std::uint64_t num_operations);
  std::vector<std::size_t> promising(Timed kind, std::size_t size_class);
  static void reconsider_trials(Class* size_class);
  static double best_rate(const Class& size_class);
  static std::size_t first_of_the_fastest(const Class& size_class);
  static bool is_chosen(const Class& c) { return c.rate_when_chosen[c.chosen] != 0; }

  NodeMemory& memory_;
  Waiting& waiting_;
  int rank_;
  int size_;
  std::vector<CopyVariant> variants_;
  std::function<double()> hop_seconds_;
  std::array<Classes, 2> classes_{};
  std::size_t near_ = 0;  // which of them; the other one is for far
  double least_hop_ = 0;
  bool is_far_ = false;
  std::size_t bytes_since_look_ = ~std::size_t{0} / 2;
  std::array<Past, 4> past_{};
  std::uint64_t num_timed_ = 0;
  bool is_timed_ = false;  // the operation under way
};

}  // namespace dlscale
