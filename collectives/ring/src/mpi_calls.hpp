// MPI's return codes as exceptions, and how the ranks of a node find each other over MPI.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <stdexcept>
#include <string>

#include "node/bootstrap.hpp"

namespace dlscale {

// MPI's own words for a return code of `call`.
inline std::string error_text(int code, const char* call) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length));
}

// Throws std::runtime_error with MPI's own text. For communicators whose handler is MPI_ERRORS_RETURN.
inline void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw std::runtime_error(error_text(code, call));
}

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
