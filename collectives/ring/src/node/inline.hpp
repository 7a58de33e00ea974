// The smallest messages, which travel in the cache line of their own flag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../reduction/kernels.hpp"
#include "control_block.hpp"
#include "waiting.hpp"

namespace dlscale {

// Every rank fills its line, raises the line's flag, and reads the lines of all: one synchronisation.
//
// Two lines by turns. Reuse: a rank fills the line of operation n again in operation n + 2. In n + 1 it has
// waited for the flag of every rank, and each raised that one after it had read all lines of n.
class Inline {
 public:
  Inline(NodeMemory& memory, Waiting& waiting, const Kernels& kernels, int rank, int size)
      : memory_(memory),
        waiting_(waiting),
        kernels_(kernels),
        rank_(rank),
        sources_(static_cast<std::size_t>(size)) {}

  // In place; every rank reduces all elements itself, with the same bits. At most InlineLine::kPayloadBytes.
  void allreduce(std::byte* data, std::size_t count, Type type, Op op, double scale) {
    exchange(data, count * width(type), tag_of(Operation::allreduce, count, type, op));
    sources_[static_cast<std::size_t>(rank_)] = data;
    reduce(kernels_, type, op, {data, nullptr, sources_.data(), sources_.size(), count, scale, false});
    ++num_operations_;
  }

  // all[q] becomes rank q's `num_bytes` bytes, at most InlineLine::kPayloadBytes.
  void allgather(const void* mine, void* all, std::size_t num_bytes) {
    exchange(mine, num_bytes, tag_of(Operation::allgather, num_bytes, Type::int64, Op::sum));
    for (std::size_t q = 0; num_bytes && q < sources_.size(); ++q) {
      std::memcpy(static_cast<std::byte*>(all) + q * num_bytes, sources_[q], num_bytes);
    }
    ++num_operations_;
  }

 private:
  InlineLine& line(int q) const { return memory_.control_block(q).lines[num_operations_ % 2]; }

  // Afterwards sources_[q] is what rank q brought.
  void exchange(const void* data, std::size_t num_bytes, std::uint32_t tag) {
    InlineLine& own = line(rank_);
    if (num_bytes) std::memcpy(own.payload, data, num_bytes);
    between_steps();
    own.tag.store(tag, std::memory_order_relaxed);
    waiting_.announce(&own, num_operations_ + 1);
    for (int q = 0; q < static_cast<int>(sources_.size()); ++q) {
      InlineLine& other = line(q);
      waiting_.until(&other, num_operations_ + 1, q);
      waiting_.compare(tag, other.tag.load(std::memory_order_relaxed), q);
      sources_[static_cast<std::size_t>(q)] = other.payload;
    }
  }

  NodeMemory& memory_;
  Waiting& waiting_;
  const Kernels& kernels_;
  int rank_;
  std::vector<const void*> sources_;
  std::uint64_t num_operations_ = 0;
};

}  // namespace dlscale
