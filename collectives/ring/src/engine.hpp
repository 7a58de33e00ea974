// The ring's collective operations over one communicator.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <mutex>
#include <vector>

#include "geometry.hpp"
#include "mpi_calls.hpp"
#include "sum.hpp"

namespace dlscale {

// Every operation is collective and blocking; all ranks call the same ones in the same order. Threads may
// share an engine: their calls take turns. After an exception out of MPI the engine refuses to go on, since
// messages of the broken operation may still be under way.
class Engine {
 public:
  // Collective. Works on a duplicate of `comm`, so its messages meet nobody else's.
  Engine(MPI_Comm comm, std::size_t segment_bytes);
  // Frees no communicator: that is collective, and destructors run in any order. See `close`.
  ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool crowded() const { return crowded_; }

  // Replaces data[0, count) on every rank by the sum over ranks. One rank finishes each chunk and hands its
  // bits on, so all ranks end with the same ones.
  void allreduce(std::byte* data, std::size_t count, const Element& element);

  // Replaces data[0, num_bytes) on every rank by that of `root`.
  void broadcast(std::byte* data, std::size_t num_bytes, int root);

  void barrier();

  // Frees the communicator; a second call does nothing.
  void close();

 private:
  // A cache line: scratch made of them is aligned for every instruction set.
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  template <typename Operation>
  void operate(Operation operation);
  void run(const Ring& ring, std::byte* data, const Element& element);
  bool arrived(MPI_Request* request, std::size_t num_bytes) const;
  void wait_for(MPI_Request* request) const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  std::size_t segment_bytes_;
  bool crowded_ = false;
  bool failed_ = false;
  std::mutex mutex_;
  std::vector<Line> scratch_;
};

}  // namespace dlscale
