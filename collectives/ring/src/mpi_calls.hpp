// MPI's return codes as exceptions.
#pragma once

#include <mpi.h>

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

}  // namespace dlscale
