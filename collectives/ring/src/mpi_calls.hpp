// MPI's return codes as exceptions, and requests that do not outlive their scope.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

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

// The last `kWindow` requests of a stream of messages: number i has slot i mod `kWindow`.
//
// All are complete when an operation ends well. If it ends by an exception, receives that were never matched
// are cancelled and the rest is given up: the communicator is of no more use then.
class Requests {
 public:
  static constexpr std::size_t kWindow = 4;

  Requests() { slots_.fill(MPI_REQUEST_NULL); }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  ~Requests() {
    for (MPI_Request& request : slots_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }

  MPI_Request* operator[](std::size_t i) { return &slots_[i % kWindow]; }

 private:
  std::array<MPI_Request, kWindow> slots_;
};

}  // namespace dlscale
