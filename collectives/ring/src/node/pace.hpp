// Which manner of moving large messages is fastest here and now.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "board.hpp"
#include "staged.hpp"

namespace dlscale {

// Tries all manners in turn at the first operations of a size class, then keeps the fastest, tries the others
// again now and then, and at once when the kept one becomes much slower: on virtual machines the distance
// between two caches changes while a program runs.
//
// All ranks must choose alike without a message of its own. Each writes how long operation n took into its
// board before it begins n + 1; at n + 2 everybody has seen everybody begin n + 1. So what is decided at n +
// 2 rests on operations up to n, the same numbers on all ranks. Of those the shortest counts: the rank that
// came last waited least.
class Pace {
 public:
  Pace(NodeMemory& memory, int rank, int size, std::vector<Manner> manners);

  // The manner of the next operation, on `num_bytes` per rank; the same on all ranks.
  // `rounded`: it is one that rounds, which has rates of its own.
  const Manner& next(std::size_t num_bytes, bool rounded = false);
  // How long it took this rank. Between `next` and `done` every rank waits for every other.
  void done(double seconds);

 private:
  struct Class {
    std::array<double, 8> rate{};  // seconds per byte of each manner, lately; 0 if not tried
    std::size_t kept = 0;
    double rate_when_kept = 0;
    std::uint64_t num_operations = 0;
    std::size_t num_trials_left = 0;
  };
  struct Past {
    std::size_t size_class = 0;
    std::size_t manner = 0;
    std::size_t num_bytes = 0;
  };

  void learn(const Past& past, double seconds);
  std::size_t choose(Class& size_class) const;

  NodeMemory& memory_;
  int rank_;
  int size_;
  std::vector<Manner> manners_;
  static constexpr std::size_t kNumSizes = 48;
  std::array<Class, 2 * kNumSizes> classes_{};
  std::array<Past, 4> past_{};
  std::uint64_t num_operations_ = 0;
};

}  // namespace dlscale
