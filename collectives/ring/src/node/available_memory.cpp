#include "available_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace dlscale {
namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

// What runs has some memory: a 0 is no answer.
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

}  // namespace

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

}  // namespace dlscale
