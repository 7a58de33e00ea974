#include "notices.hpp"

#include "mpi_calls.hpp"

namespace dlscale {

Notices::Notices(MPI_Comm comm, int tag) : comm_(comm), tag_(tag) {
  int size = 0;
  check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  waiters_.resize(static_cast<std::size_t>(size));
}

void Notices::tell_failure(const std::string& text) noexcept {
  Notice notice{0, -1, {}};
  text.copy(notice.failure, sizeof(notice.failure) - 1);
  tell(notice);
}

void Notices::tell_waiting(std::uint64_t operation, int for_rank) noexcept {
  tell({operation, for_rank, {}});
}

void Notices::tell(const Notice& notice) noexcept {
  Notice& kept = sent_[notice.failure[0] ? 1 : 0];
  kept = notice;
  int finalized = 0;
  if (MPI_Finalized(&finalized) != MPI_SUCCESS || finalized) return;
  for (int r = 0; r < static_cast<int>(waiters_.size()); ++r) {
    if (r == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(&kept, sizeof(Notice), MPI_BYTE, r, tag_, comm_, &request) == MPI_SUCCESS) {
      MPI_Request_free(&request);
    }
  }
}

const std::string& Notices::look() {
  for (;;) {
    int there = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, tag_, comm_, &there, &status), "MPI_Iprobe");
    if (!there) return failure_;
    Notice notice{};
    check(MPI_Recv(&notice, sizeof(Notice), MPI_BYTE, status.MPI_SOURCE, tag_, comm_, MPI_STATUS_IGNORE),
          "MPI_Recv");
    if (notice.failure[0] && failure_.empty()) failure_ = notice.failure;
    if (notice.for_rank >= 0) {
      waiters_[static_cast<std::size_t>(status.MPI_SOURCE)] = {notice.operation, notice.for_rank};
    }
  }
}

int Notices::end_of_chain(std::uint64_t operation, int for_rank) const {
  int end = for_rank;
  for (std::size_t i = 0; i < waiters_.size(); ++i) {  // no longer than all ranks, should it be a circle
    const Waiter& waiter = waiters_[static_cast<std::size_t>(end)];
    if (waiter.for_rank < 0 || waiter.operation != operation) break;
    end = waiter.for_rank;
  }
  return end;
}

}  // namespace dlscale
