#include "error_propagation.hpp"

#include <cstdint>

#include "mpi_calls.hpp"

namespace dlscale {

ErrorPropagation::ErrorPropagation(MPI_Comm comm, int tag) : comm_(comm), tag_(tag) {
  int size = 0;
  check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  waiters_.resize(static_cast<std::size_t>(size));
}

void ErrorPropagation::send_failure(const std::string& text) noexcept {
  Report report{0, -1, {}};
  text.copy(report.failure, sizeof(report.failure) - 1);
  send(report);
}

void ErrorPropagation::send_waiting(std::uint64_t operation, int for_rank) noexcept {
  send({operation, for_rank, {}});
}

void ErrorPropagation::send(const Report& report) noexcept {
  Report& last = sent_[report.failure[0] ? 1 : 0];
  last = report;
  int finalized = 0;
  if (MPI_Finalized(&finalized) != MPI_SUCCESS || finalized) return;
  for (int r = 0; r < static_cast<int>(waiters_.size()); ++r) {
    if (r == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(&last, sizeof(Report), MPI_BYTE, r, tag_, comm_, &request) == MPI_SUCCESS) {
      MPI_Request_free(&request);
    }
  }
}

std::string ErrorPropagation::poll() {
  for (;;) {
    int there = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, tag_, comm_, &there, &status), "MPI_Iprobe");
    if (!there) return failure_;
    Report report{};
    check(MPI_Recv(&report, sizeof(Report), MPI_BYTE, status.MPI_SOURCE, tag_, comm_, MPI_STATUS_IGNORE),
          "MPI_Recv");
    if (report.failure[0] && failure_.empty()) failure_ = report.failure;
    if (report.for_rank >= 0) {
      waiters_[static_cast<std::size_t>(status.MPI_SOURCE)] = {report.operation, report.for_rank};
    }
  }
}

int ErrorPropagation::end_of_chain(std::uint64_t operation, int for_rank) {
  int end = for_rank;
  for (std::size_t i = 0; i < waiters_.size(); ++i) {  // no longer than all ranks, should it be a circle
    const Waiter& waiter = waiters_[static_cast<std::size_t>(end)];
    if (waiter.for_rank < 0 || waiter.operation != operation) break;
    end = waiter.for_rank;
  }
  return end;
}

}  // namespace dlscale
