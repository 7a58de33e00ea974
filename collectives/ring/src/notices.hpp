// Word from rank to rank about who waits for whom, and about failures, beside the operations themselves.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dlscale {

// A rank sees its own node's processes die, but not those of other nodes: their mates tell it. And in a chain
// of ranks that wait for each other all say for whom they wait, so that all come to blame the one at its end,
// who says nothing. Nobody waits for a notice; who waits for a message looks now and then.
class Notices {
 public:
  // `comm` stays the caller's; `tag` is used for nothing else on it. Collective, but no messages are sent.
  Notices(MPI_Comm comm, int tag);

  // Tell all other ranks; do not wait until they have it.
  void tell_failure(const std::string& text) noexcept;
  void tell_waiting(std::uint64_t operation, int for_rank) noexcept;

  // Takes note of what has come. The first failure that was told, or nothing.
  const std::string& look();

  // Who keeps everybody from going on in `operation`, if this rank waits for `for_rank`: the end of the
  // chain.
  int end_of_chain(std::uint64_t operation, int for_rank) const;

 private:
  struct Notice {
    std::uint64_t operation;
    int for_rank;
    char failure[300];  // empty: no failure
  };
  struct Waiter {
    std::uint64_t operation = 0;
    int for_rank = -1;
  };

  void tell(const Notice& notice) noexcept;

  MPI_Comm comm_;
  int tag_;
  int rank_ = 0;
  std::vector<Waiter> waiters_;
  std::string failure_;
  // What was sent last, of either kind: it must stay until MPI has sent it, and no one waits for that.
  Notice sent_[2]{};
};

}  // namespace dlscale
