// Messages between nodes over MPI.
#pragma once

#include <mpi.h>

#include <list>
#include <vector>

#include "link.hpp"

namespace dlscale {

// Packets are MPI messages from memory of this link's own; long messages are MPI messages from and to the
// caller's, received when their offer was matched, so that MPI never has to keep them.
class MpiLink : public Link {
 public:
  // `comm` stays the caller's and returns its errors. Uses tags from `first_tag` on.
  MpiLink(MPI_Comm comm, int first_tag) : comm_(comm), first_tag_(first_tag) {}
  ~MpiLink() override { abort(); }

  std::size_t most_at_once() const override { return kPayloadBytes; }
  bool send(int peer, const Packet& packet, const std::byte* payload) override;
  bool receive(const Handler& handle) override;
  void lend(int peer, Packet* offer, const std::byte* data, Done done) override;
  Fetch fetch(int peer, const Packet& offer, std::byte* to, Done done) override;
  bool is_idle() const override { return packets_.empty() && long_messages_.empty(); }
  void abort() noexcept override;

 private:
  static constexpr std::size_t kPayloadBytes = 8 * 1024;
  static constexpr std::size_t kMostPackets = 64;  // under way

  struct Sent {
    MPI_Request request;
    std::vector<std::byte> memory;
  };
  struct LongMessage {
    int peer;
    bool receives;
    std::vector<MPI_Request> requests;
    Done done;
  };

  int tag_of(const Packet& offer) const;
  void start(int peer, bool receives, const Packet& offer, std::byte* data, Done done);
  bool complete_packets();
  bool complete_long_messages();

  MPI_Comm comm_;
  int first_tag_;
  std::list<Sent> packets_;
  std::list<LongMessage> long_messages_;
  std::vector<std::byte> incoming_;
};

}  // namespace dlscale
