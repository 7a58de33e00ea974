// The memory that calls are timed on.
#pragma once

#include <cstddef>
#include <string>

namespace bench {

// One long row of messages. A cold call takes the next of the row, which starts over at its end: by then the
// caches have seen all the others. Any other call takes the first.
class Arena {
 public:
  // Private memory of this rank, in the kernel's usual pages, all of them touched.
  explicit Arena(std::size_t num_bytes);
  // Memory of somebody else, who keeps it.
  Arena(float* memory, std::size_t num_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  float* next(const std::string& mode, std::size_t message_bytes);

  // Enough for `largest` bytes, and for a row of cold messages longer than `cold_bytes`.
  static std::size_t needed(std::size_t largest, std::size_t cold_bytes, bool cold);

 private:
  void fill();

  float* memory_;
  std::size_t num_bytes_;
  bool owned_;
  std::size_t cursor_ = 0;  // bytes
};

}  // namespace bench
