// The bound: every rank streams to the next over a plain TCP socket, all at once.
#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

class NeighbourStreams {
 public:
  // Collective. Every rank listens on the address of its host's link.
  explicit NeighbourStreams(MPI_Comm comm) {
    int rank = 0, size = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    sockaddr_in mine = link_address();
    const int listener = need(socket(AF_INET, SOCK_STREAM, 0), "socket");
    socklen_t length = sizeof(mine);
    need(bind(listener, reinterpret_cast<sockaddr*>(&mine), length), "bind");
    need(listen(listener, 1), "listen");
    need(getsockname(listener, reinterpret_cast<sockaddr*>(&mine), &length), "getsockname");
    std::vector<sockaddr_in> all(static_cast<std::size_t>(size));
    MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, comm);
    to_next_ = need(socket(AF_INET, SOCK_STREAM, 0), "socket");
    const sockaddr_in& next = all[static_cast<std::size_t>((rank + 1) % size)];
    need(connect(to_next_, reinterpret_cast<const sockaddr*>(&next), sizeof(next)), "connect");
    from_previous_ = need(accept(listener, nullptr, nullptr), "accept");
    close(listener);
  }
  ~NeighbourStreams() {
    close(to_next_);
    close(from_previous_);
  }
  NeighbourStreams(const NeighbourStreams&) = delete;
  NeighbourStreams& operator=(const NeighbourStreams&) = delete;

  // Sends and receives so many bytes.
  void stream(std::size_t num_bytes) {
    std::thread sender(
        [&] { pass(num_bytes, out_, [&](char* at, std::size_t n) { return send(to_next_, at, n, 0); }); });
    pass(num_bytes, in_, [&](char* at, std::size_t n) { return recv(from_previous_, at, n, 0); });
    sender.join();
  }

 private:
  static constexpr std::size_t kBlock = std::size_t{1} << 20;

  static int need(int result, const char* call) {
    if (result < 0) throw std::runtime_error(std::string(call) + ": " + std::strerror(errno));
    return result;
  }

  static sockaddr_in link_address() {
    ifaddrs* all = nullptr;
    need(getifaddrs(&all), "getifaddrs");
    sockaddr_in found{};
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
      if (std::string(one->ifa_name) == "lo") continue;
      std::memcpy(&found, one->ifa_addr, sizeof(found));
    }
    freeifaddrs(all);
    if (found.sin_family != AF_INET) throw std::runtime_error("this host has no link");
    found.sin_port = 0;
    return found;
  }

  template <typename Call>
  static void pass(std::size_t num_bytes, std::vector<char>& block, Call call) {
    while (num_bytes > 0) {
      const auto passed = call(block.data(), std::min(num_bytes, kBlock));
      if (passed <= 0) throw std::runtime_error("a neighbour's stream broke off");
      num_bytes -= static_cast<std::size_t>(passed);
    }
  }

  int to_next_ = -1;
  int from_previous_ = -1;
  std::vector<char> in_ = std::vector<char>(kBlock);
  std::vector<char> out_ = std::vector<char>(kBlock);
};
