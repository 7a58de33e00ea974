// Messages between ranks about failures and about who waits for whom, apart from the operations themselves.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dlscale {

// A rank sees the processes of its own node die, but not those of other nodes: the ranks there report them.
// And in a chain of ranks that wait for each other each reports for whom it waits, so that all name the rank
// at its end, which reports nothing. Nobody waits for a report; a rank that waits for a message polls now and
// then.
class ErrorPropagation {
 public:
  // `comm` stays the caller's; `tag` is used for nothing else on it. Collective, but no messages are sent.
  ErrorPropagation(MPI_Comm comm, int tag);

  // To all other ranks, without waiting for delivery.
  void send_failure(const std::string& text) noexcept;
  void send_waiting(std::uint64_t operation, int for_rank) noexcept;

  // Receives the reports that have arrived. The first failure that was reported, or nothing.
  std::string poll();

  // The rank that holds everybody up in `operation`, if this rank waits for `for_rank`: the end of the chain.
  int end_of_chain(std::uint64_t operation, int for_rank);

 private:
  struct Report {
    std::uint64_t operation;
    int for_rank;
    char failure[300];  // empty: no failure
  };
  struct Waiter {
    std::uint64_t operation = 0;
    int for_rank = -1;
  };

  void send(const Report& report) noexcept;

  MPI_Comm comm_;
  int tag_;
  int rank_ = 0;
  std::vector<Waiter> waiters_;
  std::string failure_;
  // The last reports of either kind: they must stay until MPI has sent them, and nobody waits for that.
  Report sent_[2]{};
};

}  // namespace dlscale
