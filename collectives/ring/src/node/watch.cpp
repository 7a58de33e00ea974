#include "watch.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace dlscale {
namespace {

// Process numbers mean something only within one namespace.
unsigned long long process_namespace() {
  struct stat status{};
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<unsigned long long>(status.st_ino) : 0;
}

// The letter after the name in /proc/PID/stat: 'T' stopped by a signal, 't' by a tracer, 'Z' a zombie.
char state_letter(pid_t process) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(process));
  std::FILE* file = std::fopen(path, "re");
  if (!file) return '?';
  char text[512] = {};
  const std::size_t length = std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  text[length] = '\0';
  const char* end_of_name = std::strrchr(text, ')');
  return end_of_name && end_of_name[1] == ' ' ? end_of_name[2] : '?';
}

}  // namespace

Watch::Watch(Bootstrap& bootstrap) {
  struct Identity {
    pid_t process;
    unsigned long long where;
  };
  const Identity mine{getpid(), process_namespace()};
  for (const Identity& other : bootstrap.everyones(mine)) {
    const bool visible = !bootstrap.in_process() && other.where == mine.where && mine.where != 0;
    processes_.push_back(visible ? other.process : 0);
    descriptors_.push_back(-1);
#ifdef SYS_pidfd_open
    if (visible && other.process != mine.process) {
      descriptors_.back() = static_cast<int>(syscall(SYS_pidfd_open, other.process, 0));
    }
#endif
  }
}

Watch::~Watch() {
  for (const int descriptor : descriptors_) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

Life Watch::life_of(int q) const {
  const int descriptor = descriptors_[static_cast<std::size_t>(q)];
  if (descriptor < 0) return Life::unknown;
  pollfd ended{descriptor, POLLIN, 0};
  if (poll(&ended, 1, 0) == 1) return Life::dead;
  const char letter = state_letter(process(q));
  return letter == 'T' || letter == 't' ? Life::stopped : Life::running;
}

}  // namespace dlscale
