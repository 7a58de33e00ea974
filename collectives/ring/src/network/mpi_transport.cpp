#include "mpi_transport.hpp"

#include "../mpi_calls.hpp"

namespace dlscale::network {
namespace {

constexpr int kTag = 1;

Group group_of(MPI_Comm comm) {
  int rank = 0, size = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return {static_cast<std::size_t>(rank), static_cast<std::size_t>(size)};
}

bool finalized() {
  int yes = 0;
  MPI_Finalized(&yes);
  return yes != 0;
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm comm) : comm_(comm), group_(group_of(comm)) {}

MpiTransport::~MpiTransport() { abort(); }

void MpiTransport::reserve(std::size_t num_requests) {
  requests_.resize(num_requests, MPI_REQUEST_NULL);
  receives_.resize(num_requests, false);
  peers_.resize(num_requests, -1);
}

void MpiTransport::check_with(int peer, int code, const char* call) const {
  if (code == MPI_SUCCESS) return;
  throw PartnerFailure(peer, PartnerFailure::Cause::broken, " cannot be reached: " + error_text(code, call));
}

void MpiTransport::send(std::size_t request, int peer, const std::byte* data, std::size_t num_bytes) {
  receives_[request] = false;
  peers_[request] = peer;
  const auto length = static_cast<int>(num_bytes);
  check_with(peer, MPI_Isend(data, length, MPI_BYTE, peer, kTag, comm_, &requests_[request]), "MPI_Isend");
}

void MpiTransport::receive(std::size_t request, int peer, std::byte* data, std::size_t num_bytes) {
  receives_[request] = true;
  peers_[request] = peer;
  const auto length = static_cast<int>(num_bytes);
  check_with(peer, MPI_Irecv(data, length, MPI_BYTE, peer, kTag, comm_, &requests_[request]), "MPI_Irecv");
}

std::optional<std::size_t> MpiTransport::test(std::size_t request) {
  int done = 0;
  MPI_Status status;
  check_with(peers_[request], MPI_Test(&requests_[request], &done, &status), "MPI_Test");
  if (!done) return std::nullopt;
  int num_bytes = 0;  // of a send: of no meaning, and nobody asks
  check(MPI_Get_count(&status, MPI_BYTE, &num_bytes), "MPI_Get_count");
  return static_cast<std::size_t>(num_bytes);
}

void MpiTransport::notify(int peer) noexcept {
  if (finalized()) return;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(nullptr, 0, MPI_BYTE, peer, kTag, comm_, &request) == MPI_SUCCESS) MPI_Request_free(&request);
}

// Receives that were never matched are cancelled; the rest is left to MPI. Sends are never cancelled: MPI
// advises against it, and MPICH over UCX crashes if the message goes through shared memory.
void MpiTransport::abort() noexcept {
  if (finalized()) return;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (receives_[i]) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

}  // namespace dlscale::network
