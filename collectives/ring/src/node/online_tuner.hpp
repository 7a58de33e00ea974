// Finds, while the program runs, which variant of moving large messages is fastest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "control_block.hpp"
#include "staged.hpp"

namespace dlscale {

// Tries all variants in turn at the first operations of a size class, then uses the fastest, tries the others
// again now and then, and at once when the chosen variant becomes much slower: on virtual machines the
// distance between two caches changes while a program runs.
//
// All ranks must choose alike without extra messages. Each writes how long operation n took into its control
// block before it begins n + 1; at n + 2 every rank has seen every other begin n + 1. So a decision at n + 2
// rests on operations up to n, the same numbers on all ranks. The shortest of these times counts: the rank
// that came last waited least.
class OnlineTuner {
 public:
  OnlineTuner(NodeMemory& memory, int rank, int size, std::vector<CopyVariant> variants);

  // The variant of the next operation, on `num_bytes` per rank; the same on all ranks.
  // `rounded`: the operation rounds; such operations have rates of their own.
  const CopyVariant& next(std::size_t num_bytes, bool rounded = false);
  // How long the operation took on this rank. Between `next` and `done` every rank waits for every other.
  void done(double seconds);

 private:
  struct Class {
    std::array<double, 8> rate{};  // seconds per byte of each variant, recently; 0 if not tried
    std::size_t chosen = 0;
    double rate_when_chosen = 0;
    std::uint64_t num_operations = 0;
    std::size_t num_trials_left = 0;
  };
  struct Past {
    std::size_t size_class = 0;
    std::size_t variant = 0;
    std::size_t num_bytes = 0;
  };

  void learn(const Past& past, double seconds);
  std::size_t choose(Class& size_class) const;

  NodeMemory& memory_;
  int rank_;
  int size_;
  std::vector<CopyVariant> variants_;
  static constexpr std::size_t kNumSizes = 48;
  std::array<Class, 2 * kNumSizes> classes_{};
  std::array<Past, 4> past_{};
  std::uint64_t num_operations_ = 0;
};

}  // namespace dlscale
