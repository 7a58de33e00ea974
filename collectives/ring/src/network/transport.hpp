// Messages between ranks, without a word of how they get there: MPI in a program, a mailbox in the tests that
// run ranks as threads of one process.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

#include "schedule.hpp"

namespace dlscale::network {

// An exchange cannot go on because of one of its other ranks.
struct PartnerFailure : std::runtime_error {
  enum class Cause {
    differing,  // it called something else: that is the cause
    broken,     // a message to or from it failed: it may be dead, and others may know
    gave_up     // it gave up because of yet another failure
  };

  // `peer`: its rank in the transport's group. `said`: what comes after the rank's name in a sentence.
  PartnerFailure(int peer_, Cause cause_, const std::string& said_)
      : std::runtime_error("rank " + std::to_string(peer_) + said_),
        peer(peer_),
        cause(cause_),
        said(said_) {}

  int peer;
  Cause cause;
  std::string said;
};

// Nothing here blocks, and one thread at a time calls it. Requests are numbered by the caller, 0 .. the
// number last given to `reserve` - 1; a number is free again once `test` said that its message is complete.
//
// Messages from one rank to another arrive in the order in which they were sent.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual Group group() const = 0;

  // No request is under way.
  virtual void reserve(std::size_t num_requests) = 0;

  // `data` stays untouched, or unread, until `test` says that the message is complete.
  virtual void send(std::size_t request, int peer, const std::byte* data, std::size_t num_bytes) = 0;
  virtual void receive(std::size_t request, int peer, std::byte* data, std::size_t num_bytes) = 0;

  // The bytes that were sent or came, once they have; fewer may come than were asked for. Every call moves
  // all messages of the rank on, not only this one. Throws PartnerFailure if the message failed.
  virtual std::optional<std::size_t> test(std::size_t request) = 0;

  // Sends an empty message that nobody waits for: a word to the other side that nothing else will come.
  virtual void warn(int peer) noexcept = 0;

  // Cancels what is under way. Nobody can send to this rank through this transport any more.
  virtual void give_up() noexcept = 0;
};

}  // namespace dlscale::network
