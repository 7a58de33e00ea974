// Messages in ordinary memory that pass through shared memory: the eager protocol, in chunks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../reduction/kernels.hpp"
#include "control_block.hpp"
#include "slices.hpp"
#include "waiting.hpp"

namespace dlscale {

// Chunks are numbered through all operations. Each goes through two stages, or three:
//   publish  copy what others need of it into a slot of this rank, and raise `published`;
//   take     wait for `published` of all, and reduce or copy from their slots;
//   collect  (allreduce of slices) `take` left the own slice's results in the own slot, where this rank's
//   input
//            would lie, and raised `reduced`: copy the others' results from theirs.
// While chunk c is published, c - 1 is taken and c - 2 collected, so that a wait is usually over before it
// begins. Every element is reduced once, in rank order: the bits depend neither on the chunk size nor on the
// variant.
//
// Reuse: `publish(c)` overwrites the slot of c - 5, by the same order of stages on all ranks. It first waits
// until all have published c - 2, usually long since. Whoever published c - 2 had collected c - 5 just
// before, or had ended the operation of c - 5: nobody reads that slot any more. The tags, one per slot, are
// read before the slot is.
class Staged {
 public:
  Staged(NodeMemory& memory, Waiting& waiting, const Kernels& kernels, int rank, int size)
      : memory_(memory),
        waiting_(waiting),
        kernels_(kernels),
        rank_(rank),
        size_(size),
        sources_(static_cast<std::size_t>(size)) {}

  // All ranks publish everything and reduce everything, `piece` elements at a time.
  void allreduce_one_shot(const Job& job, std::size_t count, std::size_t piece);
  void allreduce(const Job& job, const Slices& slices);
  // Only the own slices of the output are written.
  void reduce_scatter(const Job& job, const Slices& slices);
  // The own slices of the input reach all; those of the output are written where they lie elsewhere.
  void allgather(const Job& job, const Slices& slices);

 private:
  static constexpr std::uint64_t kAhead = 2;  // chunks

  template <typename Publish, typename Take, typename Collect>
  void pipeline(std::uint32_t tag, std::size_t num_chunks, std::size_t chunk_bytes, bool rotates,
                const Publish& publish, const Take& take, const Collect& collect);
  void publish_others(const Job& job, const Slices& slices, std::size_t chunk);
  void reduce_from(std::size_t offset, const Job& job, Range range, std::byte* second);
  void wait_for_published(std::uint64_t number);
  void wait_for_chunk();
  std::byte* slot(int q, std::uint64_t number) const {
    return memory_.staging(q) + places_[number % kNumSlots];
  }
  void put(const Job& job, std::byte* to, Range range) const;

  NodeMemory& memory_;
  Waiting& waiting_;
  const Kernels& kernels_;
  int rank_;
  int size_;
  std::vector<const void*> sources_;
  std::array<std::size_t, kNumSlots> places_{};  // of the last chunks, in every rank's staging
  std::uint32_t tag_ = 0;                        // of the operation under way
  std::uint64_t number_ = 0;                     // of the chunk whose stage is under way
  std::uint64_t num_chunks_ = 0;                 // of the operations before
  std::uint64_t num_published_by_all_ = 0;       // known so far
};

}  // namespace dlscale
