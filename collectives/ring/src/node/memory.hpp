// Memory that the ranks of a node share.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bootstrap.hpp"

namespace dlscale {

// How a rank's part is handed to the others. Both are private to the user and leave nothing behind.
enum class Sharing {
  automatic,    // memory_file, and where the others may not open it, shm_file
  memory_file,  // without a name (memfd), opened through /proc; not limited by the size of /dev/shm
  shm_file,     // a file in /dev/shm, mode 0600, unlinked as soon as all have mapped it
};

struct SharedMemoryOptions {
  Sharing sharing = Sharing::automatic;
  // Parts without a name that are large enough lie on pages of 2 MiB, if so many are free.
  bool huge_pages = true;
};

// One part per rank, mapped by all; each rank's part is allocated by itself, so on its own memory node.
class SharedMemory {
 public:
  // Zeroed parts of `num_bytes` each; collective. Throws std::runtime_error on all ranks if there is too
  // little memory, or if ranks ask for different sizes: never a SIGBUS later.
  SharedMemory(Bootstrap& bootstrap, std::size_t num_bytes, const SharedMemoryOptions& options);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Rank q's part, page-aligned.
  std::byte* part(int q) const { return parts_[static_cast<std::size_t>(q)]; }
  std::size_t num_bytes() const { return num_bytes_; }
  const char* kind() const { return kind_; }
  // Why the own part does not lie on huge pages; empty if it does.
  const std::string& obstacle_to_huge_pages() const { return obstacle_to_huge_pages_; }

 private:
  void require_room(Bootstrap& bootstrap) const;
  bool share_by_memory_file(Bootstrap& bootstrap, std::string* complaint);
  void share_by_shm_file(Bootstrap& bootstrap, std::string* complaint);
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
  const char* kind_ = "none";
};

}  // namespace dlscale
