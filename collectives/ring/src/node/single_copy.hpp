// Large messages in ordinary memory, where the kernel lets ranks read and write each other's: nothing is
// staged.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "control_block.hpp"
#include "staged.hpp"
#include "watch.hpp"

namespace dlscale {

// Whether each rank of the node can read and write the memory of every other by process_vm_readv and
// process_vm_writev: empty, or why not. Tried, not asked: sysctls, containers and security modules all have a
// say. Collective; the same on all ranks.
std::string obstacle_to_single_copies(Bootstrap& bootstrap, const Watch& watch);

// A rank fetches the others' elements of its own slice, piece by piece, into memory that stays in its cache,
// adds them to its own, and stores the result in the memory of all. P ranks with S bytes each thus read and
// write 2 P S bytes of their buffers, the least that is possible; each piece passes a cache once more than in
// Push.
//
// Whoever has lent its buffer stays until all are done with it.
class SingleCopy {
 public:
  using Job = Staged::Job;

  // Pieces are of `chunk_bytes` for all ranks together.
  SingleCopy(NodeMemory& memory, Waiting& waiting, const Kernels& kernels, const Watch& watch, int rank,
             int size, bool in_process, std::size_t chunk_bytes);

  // All are false on all ranks, and all inputs are as they were, if the kernel cannot copy some rank's
  // buffer.
  bool allreduce(const Job& job, std::size_t count);
  bool reduce_scatter(const Job& job, const std::vector<Range>& blocks);
  bool allgather(const Job& job, const std::vector<Range>& blocks);
  // In place. All blocks but the root's are empty.
  bool broadcast(const Job& job, const std::vector<Range>& blocks);

 private:
  // Whether a rank finds out that the kernel does not copy its memory before anything is done, which takes a
  // microsecond, or while others copy.
  enum class Refusal { before, during };

  bool lend(const Job& job, std::size_t count, std::size_t kind, Refusal refusal);
  bool give_back(bool refused);
  void reduce_piece(const Job& job, Range piece);
  std::uintptr_t lent_at(int q, Range range, std::size_t element) const;
  // These say whether the kernel copied.
  bool fetch(int q, std::byte* to, Range range, std::size_t element);
  bool store(int q, const std::byte* from, Range range, std::size_t element);
  bool fetch_result(const Job& job, int q, Range range);
  bool store_input(const Job& job, int q, Range range);
  bool has_copied(int q, int error) const;
  void require(bool copied, int q) const;

  NodeMemory& memory_;
  Waiting& waiting_;
  const Kernels& kernels_;
  int rank_;
  int size_;
  std::vector<pid_t> processes_;
  const std::size_t piece_bytes_;  // fetched from each rank at a time
  std::vector<const void*> sources_;
  std::vector<std::uintptr_t> lent_;  // each rank's first element
  std::uint64_t num_operations_ = 0;
};

}  // namespace dlscale
