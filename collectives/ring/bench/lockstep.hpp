// A start line for the ranks of one node: a barrier with less skew than any MPI's, and the same for all of
// them.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace bench {

// Each rank has a cache line of its own in a file that all map, and counts its arrivals there. What is
// measured begins within one or two cache-line transfers on all ranks.
class Lockstep {
 public:
  // `file` exists, is empty and private to the user; it is removed once all have mapped it. Collective. With
  // `yields`, for ranks that share CPUs, waiting gives the CPU away.
  Lockstep(const std::string& file, MPI_Comm comm, bool yields);
  ~Lockstep();
  Lockstep(const Lockstep&) = delete;
  Lockstep& operator=(const Lockstep&) = delete;

  void wait();

  // The largest of all ranks' values, on all of them: without MPI, whose own calls may be slow. Collective.
  double largest(double value);

  // Seconds that a flag needs from rank 0 to rank 1 and back, the best of several runs; 0 on a single rank.
  // Says whether the two CPUs share a cache at that time: a virtual machine may be moved. Collective.
  double round_trip();

 private:
  struct alignas(64) Line {
    std::atomic<std::uint64_t> arrivals;
    double value;
  };

  void wait_for(const Line& line, std::uint64_t arrivals) const;

  Line* lines_ = nullptr;
  std::size_t num_bytes_ = 0;
  int rank_ = 0;
  int size_ = 1;
  bool yields_;
  std::uint64_t arrivals_ = 0;
  std::uint64_t bounces_ = 0;
};

}  // namespace bench
