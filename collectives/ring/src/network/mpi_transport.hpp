// Messages over MPI, point to point.
#pragma once

#include <mpi.h>

#include <vector>

#include "transport.hpp"

namespace dlscale::network {

class MpiTransport : public Transport {
 public:
  // `comm` stays the caller's, returns its errors (MPI_ERRORS_RETURN) and outlives the transport, which
  // alone sends over it.
  explicit MpiTransport(MPI_Comm comm);
  ~MpiTransport() override;

  Group group() const override { return group_; }
  void reserve(std::size_t num_requests) override;
  void send(std::size_t request, int peer, const std::byte* data, std::size_t num_bytes) override;
  void receive(std::size_t request, int peer, std::byte* data, std::size_t num_bytes) override;
  std::optional<std::size_t> test(std::size_t request) override;
  void notify(int peer) noexcept override;
  void abort() noexcept override;

 private:
  void check_with(int peer, int code, const char* call) const;

  MPI_Comm comm_;
  Group group_;
  std::vector<MPI_Request> requests_;
  std::vector<char> receives_;  // whether a request is (or was last) a receive
  std::vector<int> peers_;      // with whom
};

}  // namespace dlscale::network
