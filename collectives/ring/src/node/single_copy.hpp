// Large messages in ordinary memory, where the kernel lets ranks read and write each other's: nothing is
// staged.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../reduction/kernels.hpp"
#include "rendezvous.hpp"
#include "slices.hpp"
#include "watch.hpp"

namespace dlscale {

// Whether each rank of the node can read and write the memory of every other by process_vm_readv and
// process_vm_writev: empty, or why not. Tried, not asked: sysctls, containers and security modules all have a
// say. Collective; the same on all ranks.
std::string obstacle_to_single_copies(Bootstrap& bootstrap, const Watch& watch);

// The word of the rendezvous is where a rank's buffer would have element 0. A rank fetches the others'
// elements of its own slice, piece by piece, into memory that stays in its cache, adds them to its own, and
// stores the result in the memory of all. P ranks with S bytes each thus read and write 2 P S bytes of their
// buffers, the least that is possible; each piece passes a cache once more than in Push.
class SingleCopy {
 public:
  SingleCopy(Rendezvous& rendezvous, Waiting& waiting, const Kernels& kernels, const Watch& watch, int rank,
             int size, bool in_process, std::size_t piece_bytes);

  // All are false on all ranks, and nothing is done, if the kernel cannot copy some rank's buffer.
  bool allreduce(const Job& job, std::size_t count);
  bool reduce_scatter(const Job& job, const std::vector<Range>& blocks);
  bool allgather(const Job& job, const std::vector<Range>& blocks);
  // In place. All blocks but the root's are empty.
  bool broadcast(const Job& job, const std::vector<Range>& blocks);

 private:
  bool open(Operation operation, const Job& job, std::size_t count);
  bool close();
  void reduce_piece(const Job& job, Range piece);
  std::uintptr_t address_of(int q, Range range, std::size_t element) const;
  void fetch(int q, std::byte* to, Range range, std::size_t element);
  void store(int q, const std::byte* from, Range range, std::size_t element);
  void fetch_result(const Job& job, int q, Range range);
  template <typename Move>
  void in_pieces(Range range, std::size_t element, const Move& move) const;

  Rendezvous& rendezvous_;
  Waiting& waiting_;
  const Kernels& kernels_;
  int rank_;
  int size_;
  std::vector<pid_t> processes_;
  const std::size_t piece_bytes_;  // fetched from each rank at a time
  std::vector<const void*> sources_;
};

}  // namespace dlscale
