// Messages between ranks, whatever carries them: MPI in a program, a mailbox in the tests that
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
    aborted     // it aborted because of yet another failure
  };

  // `peer`: its rank in the transport's group. `reason`: what follows the rank's name in a sentence.
  PartnerFailure(int peer_, Cause cause_, const std::string& reason_)
      : std::runtime_error("rank " + std::to_string(peer_) + reason_),
        peer(peer_),
        cause(cause_),
        reason(reason_) {}

  int peer;
  Cause cause;
  std::string reason;
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

  // Sends an empty message, without waiting for it: nothing else will follow.
  virtual void notify(int peer) noexcept = 0;

  // Cancels what is under way. Nobody can send to this rank through this transport any more.
  virtual void abort() noexcept = 0;
};

}  // namespace dlscale::network
