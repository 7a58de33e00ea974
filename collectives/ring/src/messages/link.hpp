// How messages from one rank to another travel, whatever carries them: shared memory on a node, MPI between
// nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace dlscale {

// What goes from rank to rank. A short message is one packet; a longer one is announced by its sender, and
// its bytes follow when a receive for it is there.
struct Packet {
  enum class Kind : std::uint32_t {
    whole,   // a message, as the payload
    offer,   // a message is there, at `address` of the sender
    taken,   // the receiver has fetched the message `id`
    wanted,  // the receiver could not fetch the message `id`: send it in parts
    part,    // a part of the message `id`, as the payload
    filler,  // nothing: the next packet begins at the start of the channel
  };
  Kind kind;
  std::uint32_t payload_bytes;
  std::int64_t tag;
  std::uint64_t id;         // of the message, given by its sender
  std::uint64_t num_bytes;  // of the message
  std::uint64_t address;
};
static_assert(sizeof(Packet) <= 64, "it fits into a cache line");

// Carries packets to some of the ranks, from each to each in the order in which they are sent. Nothing here
// blocks, and one thread at a time calls it. `peer` is a rank of the whole communicator.
class Link {
 public:
  using Handler = std::function<void(int peer, const Packet& packet, const std::byte* payload)>;
  using Done = std::function<void()>;
  enum class Fetch { done, under_way, refused };

  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  // The longest payload.
  virtual std::size_t most_at_once() const = 0;

  // Whether there was room; the payload may then change.
  virtual bool send(int peer, const Packet& packet, const std::byte* payload) = 0;

  // Hands over the packets that have come, and moves on what is under way. Whether there was anything.
  virtual bool receive(const Handler& handle) = 0;

  // Makes `data` of the message that `offer` announces ready to be fetched, and puts into the offer what the
  // receiver must know. `done` is called if the link itself sees the end; else the receiver says `taken`.
  virtual void lend(int peer, Packet* offer, const std::byte* data, Done done) = 0;

  // Fetches the message of `peer` that `offer` announced; `done` is called if it is under way.
  virtual Fetch fetch(int peer, const Packet& offer, std::byte* to, Done done) = 0;

  // Whether nothing is under way that needs `receive` to be called again.
  virtual bool is_idle() const { return true; }
  // Lets go of what is under way after a failure.
  virtual void abort() noexcept {}
};

}  // namespace dlscale
