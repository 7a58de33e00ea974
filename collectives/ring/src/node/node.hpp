// The ranks of one node over shared memory. Free of MPI: ranks may be processes, or threads of a test.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../reduction/kernels.hpp"
#include "control_block.hpp"
#include "crew.hpp"
#include "distance.hpp"
#include "message_link.hpp"
#include "online_tuner.hpp"
#include "push.hpp"
#include "single_copy.hpp"
#include "small.hpp"
#include "staged.hpp"
#include "waiting.hpp"

namespace dlscale {

struct NodeOptions {
  double timeout_seconds = 300;
  SharedMemoryOptions memory;
  // Up to here every operation goes at once (Small); above, by what is found fastest. 0: by the number of
  // ranks.
  std::size_t one_shot_bytes = 0;
  std::vector<CopyVariant> variants;  // empty: the defaults, of which the fastest is found while running
  bool single_copy = true;            // where the kernel allows it
  std::size_t num_cores = 1;          // of each rank, for reductions and copies
  std::size_t least_shared_bytes = 256 * 1024;  // that are large enough
};

// Every rank's buffer of one size, mapped by all ranks of the node.
class SharedArray {
 public:
  // Collective. `number`: which array of its engine it is, the same on all ranks.
  SharedArray(Bootstrap& bootstrap, std::size_t num_bytes, const SharedMemoryOptions& options,
              std::size_t number)
      : memory_(bootstrap, num_bytes, options), rank_(bootstrap.rank()), number_(number) {}

  std::byte* own() const { return memory_.part(rank_); }
  std::size_t num_bytes() const { return memory_.num_bytes(); }
  const std::string& obstacle_to_huge_pages() const { return memory_.obstacle_to_huge_pages(); }
  bool holds(const std::byte* data, std::size_t num_bytes) const {
    return data >= own() && data + num_bytes <= own() + memory_.num_bytes();
  }
  static constexpr std::size_t kNamesPerArray = std::size_t{1} << 44;
  // What this rank keeps at `data`, by a name that means the same on all ranks.
  std::size_t name_of(const std::byte* data) const {
    return number_ * kNamesPerArray + static_cast<std::size_t>(data - own());
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
  const char* memory_kind() const { return memory_.kind(); }
  // Why ranks cannot copy from and to each other's memory; empty where they can.
  const std::string& obstacle_to_single_copies() const { return obstacle_; }
  std::vector<OnlineTuner::Choice> choices() const { return tuner_->choices(); }
  Waiting& waiting() { return waiting_; }
  Crew& crew() { return crew_; }
  // For messages, which go on beside the operations: what carries them, what waits for them, and the bell
  // that rings for them.
  MessageLink& message_link() { return message_link_; }
  Waiting& message_waiting() { return message_waiting_; }
  Counter* bell() { return &memory_.control_block(rank_).bell; }
  const Kernels& kernels() const { return kernels_; }

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

  // A sum of float32 that ranks hand each other as bfloat16: each rank's values are rounded before they are
  // added, and the sum once more. Rank q of P owns the q-th of P parts, in whole lines, whatever the variant,
  // so that residuals stay where they belong. One rank alone rounds nothing.
  void allreduce_rounded(float* data, std::size_t count, double scale, const Rounding& rounding);
  void barrier() { small_.barrier(); }
  void allgather_inline(const std::byte* mine, std::byte* all, std::size_t num_bytes) {
    small_.allgather_inline(mine, all, num_bytes);
  }

  // The parts of an allreduce on a shared array, for use between nodes: arrive, reduce blocks, ... push them,
  // leave.
  Push& push() { return push_; }
  std::vector<std::byte*> buffers(const SharedArray& array, const std::byte* data) const;

  // Other variants from the next operation on, the same on all ranks. Throws std::invalid_argument, on all,
  // if they need more memory than those that the node was made with.
  void tune(std::size_t one_shot_bytes, const std::vector<CopyVariant>& variants);

 private:
  Staged::Job job(const std::byte* input, std::byte* output, Type type, Op op, double scale) const;
  void exchange_blocks(Timed kind, Staged::Job* work, const std::vector<Range>& blocks);
  void make_tuner(const std::vector<CopyVariant>& variants, std::size_t one_shot_bytes);
  std::size_t slice_of(const CopyVariant& variant, Type type, std::size_t num_owners) const;

  int rank_;
  int size_;
  const Kernels& kernels_;
  NodeMemory memory_;
  Watch watch_;
  std::string obstacle_;
  Waiting waiting_;
  Waiting message_waiting_;
  MessageLink message_link_;
  Crew crew_;
  Small small_;
  Push push_;
  Staged staged_;
  SingleCopy single_copy_;
  Distance distance_;
  std::size_t one_shot_bytes_;  // up to here nothing else is tried
  std::unique_ptr<OnlineTuner> tuner_;
};

}  // namespace dlscale
