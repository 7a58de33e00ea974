// What is timed: one collective operation, by whichever library does it.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>

namespace bench {

class Operation {
 public:
  virtual ~Operation() = default;

  // Memory of its own for `count` floats, if that is what the operation is about; else nullptr, and it is
  // given ordinary memory. Collective; lives as long as the operation.
  virtual float* memory(std::size_t count) {
    (void)count;
    return nullptr;
  }

  // In place. Collective; throws std::exception if it cannot.
  virtual void run(float* data, std::size_t count) = 0;

  // Whether `run` leaves the sum over ranks in `data`, so that it can be checked.
  virtual bool sums() const { return true; }

  // First calls on a message size that are no measure of later ones, beyond the warm-up that all operations
  // get.
  virtual int trial_calls() const { return 0; }
};

// By name: "mpi", "mpi-copy" (as Intel's benchmarks do it), "stream" (no communication: every
// rank adds to its own memory) and those of ring_operation.cpp. Collective. Throws std::invalid_argument for
// an unknown name.
std::unique_ptr<Operation> make_operation(const std::string& name, MPI_Comm comm);

// The seam to the engine: nullptr for a name that is none of its own. Throws std::runtime_error where the
// engine does not offer an operation.
std::unique_ptr<Operation> make_ring_operation(const std::string& name, MPI_Comm comm);

}  // namespace bench
