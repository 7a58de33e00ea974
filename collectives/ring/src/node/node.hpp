// The ranks of one node over shared memory. Free of MPI: ranks may be processes, or threads of a test.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../reduction/kernels.hpp"
#include "control_block.hpp"
#include "online_tuner.hpp"
#include "push.hpp"
#include "single_copy.hpp"
#include "small.hpp"
#include "staged.hpp"
#include "waiting.hpp"

namespace dlscale {

struct NodeOptions {
  double timeout_seconds = 300;
  bool huge_pages = true;
  bool single_copy = true;  // where the kernel allows it
  // Up to here every operation goes one-shot; above, by the variant that is fastest. 0: by the number of
  // ranks.
  std::size_t one_shot_bytes = 0;
  std::size_t chunk_bytes = 1024 * 1024;  // the largest, all owners' slices together
  // The fastest of them is found while running.
  std::vector<Variant> variants = {Variant::one_shot, Variant::staged, Variant::streamed,
                                   Variant::single_copy};
};

// Every rank's buffer of one size, mapped by all ranks of the node.
class SharedArray {
 public:
  // Collective. `number`: which array of its engine it is, the same on all ranks.
  SharedArray(Bootstrap& bootstrap, std::size_t num_bytes, bool huge_pages, std::size_t number)
      : memory_(bootstrap, num_bytes, huge_pages), rank_(bootstrap.rank()), number_(number) {}

  std::byte* own() const { return memory_.part(rank_); }
  std::size_t num_bytes() const { return memory_.num_bytes(); }
  const std::string& obstacle_to_huge_pages() const { return memory_.obstacle_to_huge_pages(); }
  bool holds(const std::byte* data, std::size_t num_bytes) const {
    return data >= own() && data + num_bytes <= own() + memory_.num_bytes();
  }
  // What this rank keeps at `data`, by a name that means the same on all ranks.
  std::size_t name_of(const std::byte* data) const {
    return (number_ << 44) + static_cast<std::size_t>(data - own());
  }
  // Where rank q keeps what this rank keeps at `data`.
  std::byte* of_rank(int q, const std::byte* data) const { return memory_.part(q) + (data - own()); }

 private:
  SharedMemory memory_;
  int rank_;
  std::size_t number_;
};

// Every operation is collective and blocking; all ranks call the same ones in the same order.
class Node {
 public:
  // Collective. `global_ranks[q]` names local rank q in messages.
  Node(Bootstrap& bootstrap, std::vector<int> global_ranks, bool oversubscribed, const NodeOptions& options,
       const Kernels& kernels);

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Why ranks cannot copy from and to each other's memory; empty where they can.
  const std::string& obstacle_to_single_copies() const { return obstacle_; }
  std::vector<OnlineTuner::Choice> choices() const { return tuner_.choices(); }
  Waiting& waiting() { return waiting_; }

  // data[0, count) becomes the reduction over ranks in rank order, times `scale`; the same bits on all ranks.
  void allreduce(std::byte* data, std::size_t count, Type type, Op op, double scale);
  void allreduce(const SharedArray& array, std::byte* data, std::size_t count, Type type, Op op,
                 double scale);

  // Local rank o ends with blocks[o] of the reduction over ranks, at output + (begin - output_begin)
  // elements; input and output may be the same.
  void reduce_scatter(const std::byte* input, std::byte* output, std::size_t output_begin, Type type, Op op,
                      double scale, const std::vector<Range>& blocks);
  // Every rank's output gets blocks[o] of local rank o's input, each at its own place. The input begins with
  // element `input_begin`.
  void allgather(const std::byte* input, std::size_t input_begin, std::byte* output, Type type,
                 const std::vector<Range>& blocks);
  void broadcast(std::byte* data, std::size_t num_bytes, int root);

  void barrier() { small_.barrier(); }
  void allgather_inline(const std::byte* mine, std::byte* all, std::size_t num_bytes) {
    small_.allgather_inline(mine, all, num_bytes);
  }

  // The parts of an allreduce on a shared array, for use between nodes: arrive, reduce blocks, ... push them,
  // leave.
  Push& push() { return push_; }
  std::vector<std::byte*> buffers(const SharedArray& array, const std::byte* data) const;

 private:
  Staged::Job job(const std::byte* input, std::byte* output, Type type, Op op, double scale) const;
  void exchange_blocks(Timed kind, Staged::Job* work, const std::vector<Range>& blocks);
  // Lets `move` do the operation by the tuner's variant, staged where the kernel refuses to copy.
  template <typename Move>
  void by_fastest(Timed kind, std::size_t num_bytes, Staged::Job* work, const Move& move);
  std::size_t slice_of(const Staged::Job& work, std::size_t num_owners) const;

  int rank_;
  int size_;
  const Kernels& kernels_;
  NodeMemory memory_;
  Watch watch_;
  std::string obstacle_;
  Waiting waiting_;
  Small small_;
  Push push_;
  Staged staged_;
  SingleCopy single_copy_;
  std::size_t one_shot_bytes_;  // up to here nothing else is tried
  OnlineTuner tuner_;
};

}  // namespace dlscale
