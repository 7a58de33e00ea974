// Buffers that lie in shared memory: every rank reads all of them and writes its results into all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../geometry.hpp"
#include "../reduction/kernels.hpp"
#include "control_block.hpp"

namespace dlscale {

// Moves 2 P S bytes, the least that is possible: each element is read once from every rank's buffer and
// written once to every rank's. Nothing is staged. All ranks must have arrived before the first is read.
class Push {
 public:
  Push(NodeMemory& memory, Waiting& waiting, const Kernels& kernels, int rank, int size);

  // Ranks name what they reduce; all must name the same. Throws std::invalid_argument on all ranks otherwise.
  void arrive(std::size_t name, std::size_t count);

  // `buffers[q]`: rank q's elements. Between `arrive` and `leave`.
  void allreduce_slice(const std::vector<std::byte*>& buffers, Range own, Type type, Op op, double scale);
  // The own slice is finished in the own buffer only,
  void reduce_slice(const std::vector<std::byte*>& buffers, Range own, Type type, Op op, double scale);
  // and is then written into all others'.
  void push_slice(const std::vector<std::byte*>& buffers, Range own, Type type);

  // Returns when every rank's slices are in the own buffer.
  void leave();

 private:
  // Every buffer from element `begin` on.
  void look_at(const std::vector<std::byte*>& buffers, std::size_t begin, std::size_t element);

  NodeMemory& memory_;
  Waiting& waiting_;
  const Kernels& kernels_;
  int rank_;
  int size_;
  std::vector<const void*> sources_;
  std::uint64_t num_pushes_ = 0;
};

}  // namespace dlscale
