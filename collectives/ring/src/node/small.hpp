// Small messages: every rank publishes at once all that others need of it, and takes what it needs of theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../geometry.hpp"
#include "../reduction/kernels.hpp"
#include "control_block.hpp"
#include "staged.hpp"

namespace dlscale {

// Two algorithms, by size: up to `InlineLine::kPayloadBytes` in the cache line of the counter itself, and up
// to `NodeMemory::one_shot_bytes` through a slot, in pieces, so that others begin before all is published.
//
// Who begins operation n + 2 has seen every rank begin n + 1, and so end n: its line, by turns, or its place
// is free again.
class Small {
 public:
  using Job = Staged::Job;

  Small(NodeMemory& memory, Waiting& waiting, const Kernels& kernels, int rank, int size);

  // In place; every rank reduces all elements itself, with the same bits.
  void allreduce_inline(std::byte* data, std::size_t count, Type type, Op op, double scale);
  void allreduce_one_shot(const Job& job, std::size_t count);

  // As those of Node. Of all blocks together there are at most `NodeMemory::one_shot_bytes`.
  void reduce_scatter_one_shot(const Job& job, const std::vector<Range>& blocks);
  void allgather_one_shot(const Job& job, const std::vector<Range>& blocks);

  // all[q] becomes rank q's `num_bytes` bytes, at most `InlineLine::kPayloadBytes`.
  void allgather_inline(const std::byte* mine, std::byte* all, std::size_t num_bytes);

  void barrier() { allgather_inline(nullptr, nullptr, 0); }

 private:
  void write_line(const std::byte* data, std::size_t num_bytes, std::uint32_t tag);
  const InlineLine& read_line(int q, std::uint32_t tag);
  std::size_t place_for(const Job& job, std::size_t count);
  template <typename Publish, typename Take>
  void in_pieces(std::size_t num_pieces, std::size_t place, std::uint32_t tag, const Publish& publish,
                 const Take& take);
  void put(const Job& job, std::byte* to, Range range);

  NodeMemory& memory_;
  Waiting& waiting_;
  const Kernels& kernels_;
  int rank_;
  int size_;
  std::vector<const void*> sources_;
  std::vector<const std::byte*> slots_;  // of the others, in the operation under way
  std::uint64_t num_lines_ = 0;
  std::uint64_t num_one_shots_ = 0;
  std::uint64_t num_pieces_ = 0;
};

}  // namespace dlscale
