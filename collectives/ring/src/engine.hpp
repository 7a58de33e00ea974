// The ring's collective operations over one communicator, as programs use them.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "hierarchy.hpp"
#include "messages/messenger.hpp"
#include "messages/mpi_link.hpp"
#include "topology.hpp"

namespace dlscale {

struct EngineOptions {
  NodeOptions node;
  network::Tuning network;
  std::size_t block_bytes = 8 * 1024 * 1024;  // of a buffer that goes through nodes and network by turns
  int piece = 0;                              // see Topology
  bool debug = false;                         // compare the arguments of all ranks before every operation
};

// A part of this rank's memory that goes to another rank, or comes from one.
struct Part {
  int rank;
  std::byte* data;
  std::size_t num_bytes;
};

// A buffer of every rank in memory that its node shares. It outlives the engine if somebody still holds it.
using SharedBuffer = std::shared_ptr<SharedArray>;

// So much memory could not be shared, on any rank; nothing else is harmed.
struct NoMemory : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Every operation is collective and blocking; all ranks call the same ones in the same order. Threads may
// share an engine: their calls take turns. After a failure (a rank that died or is late, an error of MPI) the
// engine refuses to go on, since messages of the broken operation may still be under way.
class Engine {
 public:
  // Collective. Works on a duplicate of `comm`, so its messages meet nobody else's.
  Engine(MPI_Comm comm, const EngineOptions& options);
  // Frees no communicator: that is collective, and destructors run in any order. See `close`.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Topology& topology() const { return topology_; }
  const char* memory_kind();
  // See Node; empty and none after `close`.
  std::string obstacle_to_single_copies();
  // Why this rank's part of the shared array that was made last does not lie on huge pages; empty if it does.
  std::string obstacle_to_huge_pages();
  std::vector<OnlineTuner::Choice> choices();
  // Cores that share this rank's large reductions and copies. With `set_num_cores` others do from the next
  // operation on; 0: its share of the node's.
  std::size_t num_cores();
  void set_num_cores(std::size_t num_cores);
  const char* instruction_set() const { return kernels_.instruction_set; }

  // data[0, count) becomes the reduction over all ranks; all ranks get the same bits. Inside a node elements
  // are reduced in order of rank.
  void allreduce(std::byte* data, std::size_t count, Type type, Op op);
  // The same for a sum or average of float32 that travels as bfloat16 (hierarchy_rounded.cpp): data become
  // the rounded values. `residual`, of `count`, keeps what roundings take away; null: it is lost.
  void allreduce_rounded(float* data, std::size_t count, Op op, Residual* residual);
  // `input`: one block of `count` elements per rank; `output`: this rank's block of the reduction.
  void reduce_scatter(const std::byte* input, std::byte* output, std::size_t count, Type type, Op op);
  // `output`: one block of `count` elements per rank, each that rank's `input`.
  void allgather(const std::byte* input, std::byte* output, std::size_t count, Type type);
  void broadcast(std::byte* data, std::size_t num_bytes, int root);
  void barrier();
  // An allreduce of which only the root's result counts.
  void reduce(std::byte* data, std::size_t count, Type type, Op op, int root);
  // Each rank's parts for the others, to where these want them: an all-to-all, a gather, a scatter, by
  // `name`. Every part that is sent is received, in the order of those of one rank to one other.
  void exchange(const char* name, const std::vector<Part>& sends, const std::vector<Part>& receives,
                int root);

  // A message to another rank, or from one (Messenger). From any thread, beside operations that are under
  // way; not collective. `open`: the caller does not wait for it at once.
  MessageHandle send(const std::byte* data, std::size_t num_bytes, int peer, std::int64_t tag, bool open);
  MessageHandle receive(std::byte* data, std::size_t num_bytes, int peer, std::int64_t tag, bool open);
  // Whether it is done within so many seconds; 0: wait as for an operation.
  bool wait(const Message& message, double seconds);
  // Whether it may still come to be done.
  bool is_under_way(const Message& message);

  // Zeroed memory for `num_bytes`, on every rank; collective. An allreduce of a part of it, the same part on
  // all ranks, needs no staging: see Push. Throws NoMemory on all ranks.
  SharedBuffer share(std::size_t num_bytes);
  // What a part of such memory is called: the number of its array, from 1, times kNamesPerArray, plus its
  // first byte there. The same on all ranks and in every run; 0 if it is none.
  std::size_t name_of(const std::byte* data, std::size_t num_bytes);
  // Whether the array of such a name is still there.
  bool is_shared(std::size_t name);
  static constexpr std::size_t kNamesPerArray = SharedArray::kNamesPerArray;

  // Frees memory and communicators; collective unless something failed. Does nothing when called again, or in
  // a forked child.
  void close();

 private:
  void check_root(int root) const;
  void require_own_process() const;
  std::shared_ptr<Messenger> messenger();
  void close_messages() noexcept;
  template <typename Operation>
  void operate(Operation operation);
  void compare(const char* name, Type type, Op op, std::size_t count, int root);
  const SharedArray* shared_array_of(const std::byte* data, std::size_t num_bytes) const;

  const Kernels& kernels_;
  Topology topology_;
  MpiBootstrap bootstrap_;
  NodeOptions node_options_;
  std::unique_ptr<Hierarchy> hierarchy_;  // none: closed
  std::unique_ptr<MpiLink> mpi_link_;     // none: one node alone
  std::mutex messenger_mutex_;
  std::shared_ptr<Messenger> messenger_;  // none: closed
  bool debug_;
  std::atomic<bool> failed_{false};
  unsigned generation_;  // of the process: a fork makes a new one
  std::mutex mutex_;
  std::string obstacle_to_huge_pages_ = "no own memory was made";
  std::size_t num_shared_ = 0;
  std::vector<std::weak_ptr<SharedArray>> arrays_;
};

}  // namespace dlscale
