// Whether the other ranks of the node still live.
#pragma once

#include <sys/types.h>

#include <vector>

#include "bootstrap.hpp"

namespace dlscale {

enum class Life { running, stopped, dead, unknown };

// Looks at the processes of the node's ranks. A process that ended counts as dead even while nobody has
// waited for it. Ranks in another process namespace, or that are threads of this process, are `unknown`.
class Watch {
 public:
  explicit Watch(Bootstrap& bootstrap);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  Life life_of(int q) const;
  // The process of rank q, 0 where it cannot be seen.
  pid_t process(int q) const { return processes_[static_cast<std::size_t>(q)]; }

 private:
  std::vector<pid_t> processes_;
  std::vector<int> descriptors_;  // of each process; -1 where there is none
};

}  // namespace dlscale
