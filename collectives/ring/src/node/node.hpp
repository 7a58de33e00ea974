// The ranks of one node over shared memory. Free of MPI: ranks may be processes, or threads of a test.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "../reduction/kernels.hpp"
#include "control_block.hpp"
#include "inline.hpp"
#include "online_tuner.hpp"
#include "push.hpp"
#include "rendezvous.hpp"
#include "single_copy.hpp"
#include "staged.hpp"
#include "waiting.hpp"

namespace dlscale {

struct NodeOptions {
  double timeout_seconds = 300;
  bool huge_pages = true;
  bool single_copy = true;  // where the kernel allows it
  // Up to here every allreduce goes one-shot; above, by the variant that is fastest. 0: by the number of
  // ranks.
  std::size_t one_shot_bytes = 0;
  std::size_t chunk_bytes = 1024 * 1024;  // the largest, all owners' slices together
  // The fastest of them is found while running.
  std::vector<Variant> variants = {Variant::one_shot, Variant::staged, Variant::streamed,
                                   Variant::single_copy};
};

// Every operation is collective and blocking; all ranks call the same ones in the same order.
class Node : public Bootstrap {
 public:
  // Collective. `global_ranks[q]` names local rank q in messages.
  Node(Bootstrap& bootstrap, std::vector<int> global_ranks, bool oversubscribed, const NodeOptions& options,
       const Kernels& kernels);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool in_process() const override { return in_process_; }
  // As a bootstrap for further shared memory: unlike one over MPI its waits are bounded, and name who is
  // dead.
  void allgather(const void* mine, void* all, std::size_t num_bytes) override;

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
  void barrier() { inline_.allgather(nullptr, nullptr, 0); }

  // The parts of an allreduce on a shared array, for use between nodes.
  Push& push() { return push_; }

 private:
  void exchange_blocks(Operation operation, Job* job, const std::vector<Range>& blocks);
  // Lets `move` do the operation by the tuner's variant, staged where the kernel refuses to copy.
  template <typename Move>
  void by_fastest(Operation operation, std::size_t num_bytes, Job* job, const Move& move);
  std::size_t slice_of(const Job& job, std::size_t num_owners) const;

  int rank_;
  int size_;
  bool in_process_;
  std::size_t chunk_bytes_;
  std::size_t one_shot_bytes_;  // up to here nothing else is tried
  NodeMemory memory_;
  Watch watch_;
  std::string obstacle_;
  Waiting waiting_;
  Inline inline_;
  Staged staged_;
  Rendezvous rendezvous_;
  Push push_;
  SingleCopy single_copy_;
  OnlineTuner tuner_;
};

}  // namespace dlscale
