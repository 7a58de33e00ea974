// How far apart the caches of the node's ranks are.
#pragma once

#include <cstdint>

#include "control_block.hpp"

namespace dlscale {

// On a virtual machine whose CPUs are moved this changes while a program runs.
class Distance {
 public:
  Distance(NodeMemory& memory, Waiting& waiting, int rank, int size)
      : memory_(memory), waiting_(waiting), rank_(rank), size_(size) {}

  // Whether `hop_seconds` would tell something, and would be done soon.
  bool can_be_told() const { return size_ > 1 && size_ <= kFewRanks && !waiting_.oversubscribed(); }
  // What a cache line takes from one rank to the next, on the mean of all; the same on all ranks. Collective.
  double hop_seconds();

 private:
  static constexpr int kFewRanks = 8;

  NodeMemory& memory_;
  Waiting& waiting_;
  int rank_;
  int size_;
  std::uint64_t num_laps_ = 0;
};

}  // namespace dlscale
