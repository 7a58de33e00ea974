// Memory that the ranks of a node share.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bootstrap.hpp"

namespace dlscale {

// One part per rank, mapped by all; each rank's part is allocated by itself, so on its own memory node.
class SharedMemory {
 public:
  // Zeroed parts of `num_bytes` each; collective. Throws std::runtime_error on all ranks if there is too
  // little memory, or if ranks ask for different sizes: never a SIGBUS later.
  // `huge_pages`: parts that are large enough lie on pages of 2 MiB, if so many are free.
  SharedMemory(Bootstrap& bootstrap, std::size_t num_bytes, bool huge_pages);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Rank q's part, page-aligned.
  std::byte* part(int q) const { return parts_[static_cast<std::size_t>(q)]; }
  std::size_t num_bytes() const { return num_bytes_; }
  // Why the own part does not lie on huge pages; empty if it does.
  const std::string& obstacle_to_huge_pages() const { return obstacle_to_huge_pages_; }

 private:
  void require_room(Bootstrap& bootstrap) const;
  void share_by_memory_file(Bootstrap& bootstrap);
  void share_in_process(Bootstrap& bootstrap);
  std::string reserve_addresses();
  std::string map_part(std::size_t q, int file);
  void unmap();

  std::string obstacle_to_huge_pages_;
  std::size_t num_bytes_;
  std::vector<std::byte*> parts_;
  std::byte* addresses_ = nullptr;  // of all parts, and between them
  std::size_t num_addresses_ = 0;
  int rank_;
  int process_;  // a forked child has none of the parts
  bool in_process_;
};

}  // namespace dlscale
