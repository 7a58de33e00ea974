// Which schedule for which size: plain data, so that a tuner can write it and a plan can keep it.
#pragma once

#include <cstddef>
#include <vector>

#include "plan.hpp"

namespace dlscale::network {

struct Tuning {
  // Each algorithm serves buffers of up to so many bytes, the ring those above the last.
  std::size_t one_shot_bytes;
  std::size_t recursive_doubling_bytes;
  std::size_t halving_doubling_bytes;
  // Elements that are reduced in order of rank go one-shot or direct; reduce-scatter and allgather go direct
  // up to this many bytes and round the ring above.
  std::size_t direct_bytes;

  // Messages are no longer than `segment_bytes` in buffers of up to `up_to_bytes`; the last entry serves
  // every larger one. At most 1 GiB: MPI counts are ints.
  struct Segment {
    std::size_t up_to_bytes;
    std::size_t segment_bytes;
  };
  std::vector<Segment> segments;
  // Likewise where a reduction waits for a message from every rank.
  std::size_t direct_segment_bytes;

  std::size_t window;  // messages under way in each direction, at least 1

  // For elements of `width` bytes; `in_rank_order` as in Arithmetic.
  Plan plan(Operation operation, std::size_t count, std::size_t width, bool in_rank_order,
            std::size_t root) const;

  // Throws std::invalid_argument where a value cannot be.
  void check() const;

 private:
  Algorithm algorithm(Operation operation, std::size_t num_bytes, bool in_rank_order) const;
  std::size_t segment_bytes(Algorithm algorithm, std::size_t num_bytes) const;
};

// Good values for so many ranks; measured on 1 Gbit/s links (docs/ring.md).
Tuning default_tuning(std::size_t num_ranks);

}  // namespace dlscale::network
