// Messages between ranks of a node: packets through shared memory, long messages by copies of the kernel.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../messages/link.hpp"
#include "control_block.hpp"
#include "waiting.hpp"
#include "watch.hpp"

namespace dlscale {

// A channel from each rank to each is a ring of cache lines in the sender's memory; the receiver says how
// many it has read. Packets are contiguous.
//
// A long message is copied by the kernel, piece by piece, from one rank's memory into the other's. The
// receiver begins; both take pieces, so that a sender that waits works, and one that computes does not have
// to.
class MessageLink : public Link {
 public:
  // `ranks[q]` is local rank q's number in the communicator. The memory outlives it.
  MessageLink(NodeMemory& memory, Waiting& waiting, const Watch& watch, std::vector<int> ranks, int rank,
              bool single_copies, bool in_process);

  std::size_t most_at_once() const override;
  bool send(int peer, const Packet& packet, const std::byte* payload) override;
  bool receive(const Handler& handle) override;
  void lend(int peer, Packet* offer, const std::byte* data, Done done) override;
  Fetch fetch(int peer, const Packet& offer, std::byte* to, Done done) override;

 private:
  // Of this rank's side of the channels with one other.
  struct Side {
    std::uint64_t num_written = 0;  // lines
    std::uint64_t num_read = 0;
    std::uint64_t num_copies = 0;  // of messages from it
    std::uint64_t num_stored = 0;  // pieces of them that it stored
    std::size_t num_lent = 0;      // messages to it that are not taken yet
  };

  int local(int peer) const { return local_[static_cast<std::size_t>(peer)]; }
  Side& side(int q) { return sides_[static_cast<std::size_t>(q)]; }
  Counter* bell(int q) const { return &memory_.control_block(q).bell; }
  void write(int q, const Packet& packet, const std::byte* payload);
  bool help(int q);
  int copy(int q, bool fetches, std::byte* here, std::uintptr_t there, std::size_t num_bytes) const;

  NodeMemory& memory_;
  Waiting& waiting_;
  std::vector<pid_t> processes_;
  std::vector<int> ranks_;
  std::vector<int> local_;  // of each rank; -1: not of this node
  int rank_;
  bool single_copies_;
  std::vector<Side> sides_;
};

}  // namespace dlscale
