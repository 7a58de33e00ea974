// The ring's collective operations over one communicator, as programs use them.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "hierarchy.hpp"
#include "topology.hpp"

namespace dlscale {

struct EngineOptions {
  NodeOptions node;
  network::Tuning network;
  std::size_t block_bytes = 8 * 1024 * 1024;  // of a buffer that goes through nodes and network by turns
  int ranks_per_node = 0;                     // see Topology
  bool debug = false;                         // compare the arguments of all ranks before every operation
};

// A buffer of every rank in memory that its node shares. It outlives the engine if somebody still holds it.
using SharedBuffer = std::shared_ptr<SharedArray>;

// Successful calls of one operation by this rank, and the bytes of their messages: of an allreduce's or
// broadcast's buffer, a reduce-scatter's input, an allgather's output.
struct Count {
  std::uint64_t num_calls = 0;
  std::uint64_t num_bytes = 0;
};

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
  // See Node; empty and none after `close`.
  std::string obstacle_to_single_copies();
  // Why this rank's part of the shared array that was made last does not lie on huge pages; empty if it does.
  std::string obstacle_to_huge_pages();
  std::vector<OnlineTuner::Choice> choices();
  const char* instruction_set() const { return kernels_.instruction_set; }

  // data[0, count) becomes the reduction over all ranks; all ranks get the same bits. Inside a node elements
  // are reduced in order of rank.
  void allreduce(std::byte* data, std::size_t count, Type type, Op op);
  // `input`: one block of `count` elements per rank; `output`: this rank's block of the reduction.
  void reduce_scatter(const std::byte* input, std::byte* output, std::size_t count, Type type, Op op);
  // `output`: one block of `count` elements per rank, each that rank's `input`.
  void allgather(const std::byte* input, std::byte* output, std::size_t count, Type type);
  void broadcast(std::byte* data, std::size_t num_bytes, int root);
  void barrier();

  // Since the ranks joined; any thread may ask at any time, also after `close`.
  Count count(Operation operation) const;

  // Zeroed memory for `num_bytes`, on every rank; collective. An allreduce of a part of it, the same part on
  // all ranks, needs no staging: see Push. Throws NoMemory on all ranks.
  SharedBuffer share(std::size_t num_bytes);

  // Frees memory and communicators; collective unless something failed. Does nothing when called again, or in
  // a forked child.
  void close();

 private:
  // Does `work` under the lock after the checks, and counts a call of `num_bytes`.
  template <typename Work>
  void operate(Operation operation, Type type, Op op, std::size_t count, std::size_t num_bytes, int root,
               Work work);
  template <typename Work>
  void guarded(Work work);
  void compare(const char* name, Type type, Op op, std::size_t count, int root);
  std::size_t bytes_of_all(std::size_t count, Type type) const {
    return static_cast<std::size_t>(topology_.size) * count * width(type);
  }
  const SharedArray* shared_array_of(const std::byte* data, std::size_t num_bytes) const;

  const Kernels& kernels_;
  Topology topology_;
  bool huge_pages_;
  std::unique_ptr<Hierarchy> hierarchy_;  // none: closed
  bool debug_;
  bool failed_ = false;
  struct Counter {
    std::atomic<std::uint64_t> num_calls{0}, num_bytes{0};
  };
  std::array<Counter, kNumOperations> counters_;
  unsigned generation_;  // of the process: a fork makes a new one
  std::mutex mutex_;
  std::string obstacle_to_huge_pages_ = "no own memory was made";
  std::size_t num_shared_ = 0;
  std::vector<std::weak_ptr<SharedArray>> arrays_;
};

}  // namespace dlscale
