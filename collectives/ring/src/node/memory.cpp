#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>

namespace dlscale {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr unsigned kMemoryFileOnHugePages = 0x0004U | 21U << 26;  // MFD_HUGETLB, 2^21 bytes each

std::string why_no_huge_pages(bool wanted, std::size_t num_bytes, bool in_process) {
  if (!wanted) return "not wanted";
  if (in_process) return "ranks are threads";
  return num_bytes < kHugePage ? "smaller than one" : "";
}

std::size_t in_pages(std::size_t num_bytes, std::size_t page) {
  return (std::max<std::size_t>(num_bytes, 1) + page - 1) / page * page;
}

std::string because(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { reset(-1); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void reset(int number) {
    if (number_ >= 0) ::close(number_);
    number_ = number;
  }
  int get() const { return number_; }

 private:
  int number_;
};

// Takes the pages now, on the memory node of the caller: an access later cannot fail for want of memory.
std::string allocate(int file, std::size_t num_bytes, const std::string& where) {
  if (ftruncate(file, static_cast<off_t>(num_bytes)) != 0) return because("ftruncate");
  int error = 0;
  do {
    error = posix_fallocate(file, 0, static_cast<off_t>(num_bytes));
  } while (error == EINTR);
  if (error == 0) return "";
  return where + " cannot give " + std::to_string(num_bytes / 1024) + " KiB: " + std::strerror(error);
}

// Where parts lie among a process's addresses. AMD's first-level caches look lines up by a hash of address
// bits 12 to 27: of parts that are a multiple of 256 MiB apart, equal places push each other out, and adding
// them takes three times as long. So parts begin at multiples of a page, an odd number of them apart.
struct Places {
  explicit Places(std::size_t num_bytes)
      : page(num_bytes < kHugePage ? kPage : kHugePage),
        apart((in_pages(num_bytes, page) / page | 1) * page) {}

  std::size_t page;
  std::size_t apart;
};

// The file is ours alone: another user's cannot be slipped in.
std::string check_owner(int file) {
  struct stat status{};
  if (fstat(file, &status) != 0) return because("fstat");
  if (status.st_uid != geteuid()) return "shared memory of another user was offered";
  return "";
}

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

// The number after `key` in a file of lines "key number"; an empty key stands for a file of one number.
std::size_t number_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (!key.empty() && file >> word && word != key) file.ignore(256, '\n');
  std::size_t number = 0;
  return file >> number && number ? number : kUnlimited;
}

// What the control group `folder` (version 2) has left; what it holds of files could be given back.
std::size_t left_in(const std::string& folder) {
  const std::size_t limit = number_in(folder + "/memory.max", "");
  const std::size_t used = number_in(folder + "/memory.current", "");
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  std::size_t files = 0;
  for (const char* kind : {"active_file", "inactive_file"}) {
    const std::size_t bytes = number_in(folder + "/memory.stat", kind);
    if (bytes != kUnlimited) files += bytes;
  }
  const std::size_t kept = used - std::min(used, files);
  return limit - std::min(limit, kept);
}

// Bytes that the machine can give without ending another program, or the control group of this process within
// its limit, whichever is less. The largest number where nobody says.
std::size_t available_memory() {
  const std::size_t kib = number_in("/proc/meminfo", "MemAvailable:");
  std::size_t available = kib == kUnlimited ? kUnlimited : kib * 1024;
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::/", 0) != 0) continue;
    // The limit of a group holds for all groups in it.
    for (std::string group = line.substr(3); !group.empty(); group.erase(group.rfind('/'))) {
      available = std::min(available, left_in("/sys/fs/cgroup" + group));
    }
    available = std::min(available, left_in("/sys/fs/cgroup"));
  }
  return available;
}

}  // namespace

SharedMemory::SharedMemory(Bootstrap& bootstrap, std::size_t num_bytes, bool huge_pages)
    : obstacle_to_huge_pages_(why_no_huge_pages(huge_pages, num_bytes, bootstrap.in_process())),
      num_bytes_(in_pages(num_bytes, obstacle_to_huge_pages_.empty() ? kHugePage : kPage)),
      parts_(static_cast<std::size_t>(bootstrap.size()), nullptr),
      rank_(bootstrap.rank()),
      process_(getpid()),
      in_process_(bootstrap.in_process()) {
  require_room(bootstrap);
  if (in_process_) {
    share_in_process(bootstrap);
    return;
  }
  try {
    share_by_memory_file(bootstrap);
  } catch (...) {
    unmap();
    throw;
  }
}

SharedMemory::~SharedMemory() { unmap(); }

void SharedMemory::unmap() {
  if (getpid() != process_) return;  // at these addresses a child may have something else
  if (in_process_) {
    std::free(parts_[static_cast<std::size_t>(rank_)]);
  } else {
    if (addresses_) munmap(addresses_, num_addresses_);
    addresses_ = nullptr;
  }
  std::fill(parts_.begin(), parts_.end(), nullptr);
}

// A file in memory gets what it asks for, if need be by the end of other programs (the kernel's OOM killer).
void SharedMemory::require_room(Bootstrap& bootstrap) const {
  const std::vector<std::size_t> asked = bootstrap.everyones(num_bytes_);
  std::string complaint;
  for (std::size_t q = 1; q < asked.size(); ++q) {
    if (asked[q] == asked[0]) continue;
    complaint = "ranks want different amounts of shared memory: local rank 0 " +
                std::to_string(asked[0] / 1024) + " KiB, local rank " + std::to_string(q) + " " +
                std::to_string(asked[q] / 1024) + " KiB; ask for the same on all ranks";
    break;
  }
  const std::size_t available = available_memory();
  if (complaint.empty() && num_bytes_ > available / asked.size()) {
    complaint = std::to_string(asked.size()) + " ranks want " + std::to_string(num_bytes_ / 1024) +
                " KiB of shared memory each, and there are " + std::to_string(available / 1024) +
                " KiB in all; set smaller shared buffers, or free memory";
  }
  bootstrap.agree(complaint);
}

// Addresses for all parts; those that none is mapped to stay without access.
std::string SharedMemory::reserve_addresses() {
  const Places places(num_bytes_);
  num_addresses_ = parts_.size() * places.apart + places.page;
  void* found = mmap(nullptr, num_addresses_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return because("mmap");
  addresses_ = static_cast<std::byte*>(found);
  return "";
}

std::string SharedMemory::map_part(std::size_t q, int file) {
  const Places places(num_bytes_);
  const auto begin = reinterpret_cast<std::uintptr_t>(addresses_);
  const std::size_t to_first = (places.page - begin % places.page) % places.page;
  void* place = addresses_ + to_first + q * places.apart;
  if (mmap(place, num_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    return because("mmap");
  }
  madvise(place, num_bytes_, MADV_DONTFORK);  // a forked child must not take part by accident
#ifdef MADV_HUGEPAGE
  madvise(place, num_bytes_, MADV_HUGEPAGE);  // granted only where the system allows it for shared memory
#endif
  parts_[q] = static_cast<std::byte*>(place);
  return "";
}

// Files without a name (memfd), which the other ranks open through /proc: private to the user, not limited by
// the size of /dev/shm, and nothing is left behind.
void SharedMemory::share_by_memory_file(Bootstrap& bootstrap) {
  struct Offer {
    pid_t process;
    int file;
    dev_t device;
    ino_t number;
    bool good;
  };
  std::string complaint;
  Descriptor own;
  if (obstacle_to_huge_pages_.empty()) {  // on this rank; each finds out for itself
    own.reset(memfd_create("dlscale-ring", MFD_CLOEXEC | kMemoryFileOnHugePages));
    obstacle_to_huge_pages_ = own.get() < 0 ? because("memfd_create with huge pages")
                                            : allocate(own.get(), num_bytes_, "the pool of huge pages");
  }
  if (!obstacle_to_huge_pages_.empty()) own.reset(memfd_create("dlscale-ring", MFD_CLOEXEC));
  struct stat status{};
  if (own.get() < 0) {
    complaint = because("memfd_create");
  } else if (fchmod(own.get(), 0600) != 0) {
    complaint = because("fchmod");
  } else if (fstat(own.get(), &status) != 0) {
    complaint = because("fstat");
  } else {
    if (!obstacle_to_huge_pages_.empty()) complaint = allocate(own.get(), num_bytes_, "memory");
  }
  if (complaint.empty()) complaint = reserve_addresses();
  const std::vector<Offer> offers =
      bootstrap.everyones(Offer{getpid(), own.get(), status.st_dev, status.st_ino, complaint.empty()});
  for (std::size_t q = 0; q < offers.size() && complaint.empty(); ++q) {
    if (!offers[q].good) break;  // that rank complains
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", static_cast<int>(offers[q].process), offers[q].file);
    const bool mine = q == static_cast<std::size_t>(rank_);
    const Descriptor other(mine ? dup(own.get()) : open(path, O_RDWR | O_CLOEXEC));
    if (other.get() < 0) {
      complaint = because("opening another rank's memory through /proc");
    } else if (!(complaint = check_owner(other.get())).empty()) {
      break;
    } else if (fstat(other.get(), &status) != 0 || status.st_dev != offers[q].device ||
               status.st_ino != offers[q].number) {
      complaint = "a process of the same number in another process namespace";
    } else {
      complaint = map_part(q, other.get());
    }
  }
  bootstrap.agree(complaint);  // which each rank has of its own
}

void SharedMemory::share_in_process(Bootstrap& bootstrap) {
  auto* own = static_cast<std::byte*>(std::aligned_alloc(kPage, num_bytes_));
  if (own) std::memset(static_cast<void*>(own), 0, num_bytes_);
  parts_[static_cast<std::size_t>(rank_)] = own;
  bootstrap.agree(own ? "" : "out of memory");
  parts_ = bootstrap.everyones(own);
}

}  // namespace dlscale
