// The ranks of a node find each other over MPI.
#pragma once

#include <mpi.h>

#include "mpi_calls.hpp"
#include "node/bootstrap.hpp"

namespace dlscale {

class MpiBootstrap : public Bootstrap {
 public:
  // `comm` stays the caller's, and all its ranks can share memory.
  explicit MpiBootstrap(MPI_Comm comm) : comm_(comm) {
    check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool in_process() const override { return false; }
  void allgather(const void* mine, void* all, std::size_t num_bytes) override {
    const int count = static_cast<int>(num_bytes);
    check(MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, comm_), "MPI_Allgather");
  }

 private:
  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
};

}  // namespace dlscale
