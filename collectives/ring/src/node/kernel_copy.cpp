#include "kernel_copy.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace dlscale {
namespace {

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

// The kernel may stop early, at most 2 GiB on.
int transfer(Transfer move, pid_t process, std::byte* here, std::uintptr_t there, std::size_t num_bytes) {
  while (num_bytes) {
    const iovec mine{here, num_bytes};
    const iovec theirs{reinterpret_cast<void*>(there), num_bytes};
    const ssize_t moved = move(process, &mine, 1, &theirs, 1, 0);
    if (moved < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (moved == 0) return EFAULT;
    here += moved;
    there += static_cast<std::size_t>(moved);
    num_bytes -= static_cast<std::size_t>(moved);
  }
  return 0;
}

constexpr std::size_t kShortDistance = 32;

}  // namespace

int fetch_from(pid_t process, std::byte* to, std::uintptr_t from, std::size_t num_bytes) {
  return transfer(process_vm_readv, process, to, from, num_bytes);
}

int store_to(pid_t process, const std::byte* from, std::uintptr_t to, std::size_t num_bytes) {
  return transfer(process_vm_writev, process, const_cast<std::byte*>(from), to, num_bytes);
}

bool is_slow(std::uintptr_t from, std::uintptr_t to) {
  const std::size_t distance = (to - from) % kPage;
  return distance > 0 && distance < kShortDistance;
}

std::byte* scratch(std::size_t p, std::size_t piece_bytes, std::uintptr_t like) {
  thread_local std::vector<std::byte> memory;
  const std::size_t apart = piece_bytes / kPage * kPage + 2 * kPage;
  if (memory.size() < (p + 1) * apart + kPage) memory.resize((p + 1) * apart + kPage);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (kPage - begin % kPage) % kPage + p * apart + like % kPage;
}

std::vector<pid_t> processes_of(const Watch& watch, int size, bool in_process) {
  std::vector<pid_t> all;
  for (int q = 0; q < size; ++q) all.push_back(in_process ? getpid() : watch.process(q));
  return all;
}

}  // namespace dlscale
