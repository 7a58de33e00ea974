#include "memory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace dlscale {
namespace {

constexpr std::size_t kPage = 4096;
constexpr const char* kShmFolder = "/dev/shm";
constexpr const char* kShmPrefix = "dlscale-ring-";

std::string because(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

// Takes the pages now, on the memory node of the caller: an access later cannot fail for want of memory.
std::string allocate(int file, std::size_t num_bytes, const char* where) {
  if (ftruncate(file, static_cast<off_t>(num_bytes)) != 0) return because("ftruncate");
  int error = 0;
  do {
    error = posix_fallocate(file, 0, static_cast<off_t>(num_bytes));
  } while (error == EINTR);
  if (error == 0) return "";
  struct statvfs room{};
  std::string text = std::string(where) + " cannot give " + std::to_string(num_bytes / 1024) + " KiB";
  if (statvfs(kShmFolder, &room) == 0) {
    text += " (/dev/shm has " + std::to_string(room.f_bavail * room.f_frsize / 1024) + " KiB free)";
  }
  return text + ": " + std::strerror(error) +
         "; free or enlarge it (docker run --shm-size=1g), or set smaller shared buffers";
}

std::byte* map(int file, std::size_t num_bytes) {
  void* address = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) return nullptr;
  madvise(address, num_bytes, MADV_DONTFORK);  // a forked child must not take part by accident
#ifdef MADV_HUGEPAGE
  madvise(address, num_bytes, MADV_HUGEPAGE);  // granted only where the system allows it for shared memory
#endif
  return static_cast<std::byte*>(address);
}

// The file is ours alone: another user's cannot be slipped in.
std::string check_owner(int file) {
  struct stat status{};
  if (fstat(file, &status) != 0) return because("fstat");
  if (status.st_uid != geteuid()) return "shared memory of another user was offered";
  return "";
}

// Files that a killed program left between creating and unlinking one: their lock is gone with it.
void sweep_leftovers() {
  DIR* folder = opendir(kShmFolder);
  if (!folder) return;
  while (const dirent* entry = readdir(folder)) {
    if (std::strncmp(entry->d_name, kShmPrefix, std::strlen(kShmPrefix)) != 0) continue;
    const Descriptor file(openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (file.get() < 0 || !check_owner(file.get()).empty()) continue;
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlinkat(dirfd(folder), entry->d_name, 0);
  }
  closedir(folder);
}

}  // namespace

SharedMemory::SharedMemory(Bootstrap& bootstrap, std::size_t num_bytes, Sharing sharing)
    : num_bytes_((std::max<std::size_t>(num_bytes, 1) + kPage - 1) / kPage * kPage),
      parts_(static_cast<std::size_t>(bootstrap.size()), nullptr),
      rank_(bootstrap.rank()),
      in_process_(bootstrap.in_process()) {
  if (in_process_) {
    share_in_process(bootstrap);
    return;
  }
  try {
    std::string complaint;
    if (sharing != Sharing::shm_file) {
      share_by_memory_file(bootstrap, &complaint);
      if (complaint.empty() || sharing == Sharing::memory_file) {
        bootstrap.agree(complaint);
        return;
      }
      unmap();
      complaint.clear();
    }
    share_by_shm_file(bootstrap, &complaint);
    bootstrap.agree(complaint);
  } catch (...) {
    unmap();
    throw;
  }
}

SharedMemory::~SharedMemory() { unmap(); }

void SharedMemory::unmap() {
  if (in_process_) {
    std::free(parts_[static_cast<std::size_t>(rank_)]);
  } else {
    for (std::byte* part : parts_) {
      if (part) munmap(part, num_bytes_);
    }
  }
  std::fill(parts_.begin(), parts_.end(), nullptr);
}

// On return all ranks hold the same opinion: `complaint` is empty on all of them or on none.
void SharedMemory::share_by_memory_file(Bootstrap& bootstrap, std::string* complaint) {
  kind_ = "memfd";
  struct Offer {
    pid_t process;
    int file;
    bool good;
  };
  const Descriptor own(memfd_create("dlscale-ring", MFD_CLOEXEC));
  if (own.get() < 0) {
    *complaint = because("memfd_create");
  } else if (fchmod(own.get(), 0600) != 0) {
    *complaint = because("fchmod");
  } else {
    *complaint = allocate(own.get(), num_bytes_, "memory");
  }
  const std::vector<Offer> offers = bootstrap.everyones(Offer{getpid(), own.get(), complaint->empty()});
  for (std::size_t q = 0; q < offers.size() && complaint->empty(); ++q) {
    if (!offers[q].good) {
      *complaint = "local rank " + std::to_string(q) + " could not allocate";
      break;
    }
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", static_cast<int>(offers[q].process), offers[q].file);
    const bool mine = q == static_cast<std::size_t>(rank_);
    const Descriptor other(mine ? dup(own.get()) : open(path, O_RDWR | O_CLOEXEC));
    if (other.get() < 0) {
      *complaint = because("opening another rank's memory through /proc");
    } else {
      *complaint = check_owner(other.get());
      struct stat status{};
      if (complaint->empty() &&
          (fstat(other.get(), &status) != 0 || status.st_size != static_cast<off_t>(num_bytes_))) {
        *complaint = "another rank's memory has another size (other process namespaces?)";
      }
    }
    if (complaint->empty() && !(parts_[q] = map(other.get(), num_bytes_))) *complaint = because("mmap");
  }
  struct Verdict {
    char text[300];
  };
  Verdict mine{};
  complaint->copy(mine.text, sizeof(mine.text) - 1);
  for (const Verdict& verdict : bootstrap.everyones(mine)) {
    if (verdict.text[0] && complaint->empty()) *complaint = verdict.text;
  }
}

void SharedMemory::share_by_shm_file(Bootstrap& bootstrap, std::string* complaint) {
  kind_ = "shm";
  struct Name {
    char text[64];
  };
  if (rank_ == 0) sweep_leftovers();
  Name name{};
  unsigned long long random[2] = {0, 0};
  if (getrandom(random, sizeof(random), 0) != sizeof(random)) *complaint = because("getrandom");
  std::snprintf(name.text, sizeof(name.text), "/%s%016llx%016llx", kShmPrefix, random[0], random[1]);
  const Descriptor own(complaint->empty() ? shm_open(name.text, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600)
                                          : -1);
  if (complaint->empty()) {
    if (own.get() < 0) {
      *complaint = because("creating a file in /dev/shm");
    } else if (flock(own.get(), LOCK_EX) != 0) {
      *complaint = because("locking a file in /dev/shm");
    } else {
      *complaint = allocate(own.get(), num_bytes_, kShmFolder);
    }
  }
  if (!complaint->empty()) name.text[0] = '\0';
  const std::vector<Name> names = bootstrap.everyones(name);
  for (std::size_t q = 0; q < names.size() && complaint->empty(); ++q) {
    if (names[q].text[0] == '\0') break;  // that rank complains
    const Descriptor other(shm_open(names[q].text, O_RDWR | O_CLOEXEC, 0));
    if (other.get() < 0) {
      *complaint = because("opening another rank's file in /dev/shm");
    } else if ((*complaint = check_owner(other.get())).empty()) {
      if (!(parts_[q] = map(other.get(), num_bytes_))) *complaint = because("mmap");
    }
  }
  bootstrap.everyones('\0');  // all have opened all
  if (own.get() >= 0) {
    std::snprintf(name.text, sizeof(name.text), "/%s%016llx%016llx", kShmPrefix, random[0], random[1]);
    shm_unlink(name.text);
  }
}

void SharedMemory::share_in_process(Bootstrap& bootstrap) {
  kind_ = "process";
  auto* own = static_cast<std::byte*>(std::aligned_alloc(kPage, num_bytes_));
  if (own) std::memset(static_cast<void*>(own), 0, num_bytes_);
  parts_[static_cast<std::size_t>(rank_)] = own;
  bootstrap.agree(own ? "" : "out of memory");
  parts_ = bootstrap.everyones(own);
}

}  // namespace dlscale
