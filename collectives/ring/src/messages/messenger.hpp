// Messages from any rank to any other, blocking and not.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../node/waiting.hpp"
#include "link.hpp"

namespace dlscale {

// A message that this rank sends or receives. Its memory must stay, and stay untouched, until it is done.
struct Message {
  int peer;  // a receive from any rank learns its source
  std::int64_t tag;
  std::byte* data;
  std::size_t num_bytes;
  std::size_t num_moved = 0;  // where it comes or goes in parts
  std::atomic<bool> done{false};
  bool open = false;  // the communication thread counts it
};
using MessageHandle = std::shared_ptr<Message>;

// Messages are matched by source and tag, in the order in which they were sent; sender and receiver give the
// same length. A message that fits into a packet is done as soon as it was handed over, and waits with the
// receiver; a longer one is done when the receiver has taken it.
//
// Whoever waits moves all messages of its rank on. While messages of calls that do not wait are under way, a
// thread looks after them now and then, so that ranks that compute, or that are in another operation, hold
// nobody up.
//
// Any thread may call; several may wait at once. After a failure nothing more can be sent.
class Messenger {
 public:
  static constexpr int kAnySource = -1;
  // Tags below 0 are those of operations built on messages; users' begin with 0.
  static constexpr std::int64_t kLeastTag = 0;

  struct Setup {
    int rank;
    std::vector<Link*> links;            // to each rank; null for this one
    Waiting& waiting;                    // of messages alone
    Counter* bell;                       // of this rank, for other ranks of its node
    bool several_nodes;                  // messages come that ring no bell
    bool threads;                        // whether links may be called by a thread of ours
    std::function<void()> look = [] {};  // throws what other nodes report
    std::function<void(const std::exception&)> propagate = [](const std::exception&) {};
  };
  explicit Messenger(Setup setup);
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // `open`: nobody waits for it at once.
  MessageHandle send(int peer, std::int64_t tag, const std::byte* data, std::size_t num_bytes, bool open);
  MessageHandle receive(int peer, std::int64_t tag, std::byte* data, std::size_t num_bytes, bool open);

  // Whether it is done, within so many seconds (0: until it counts as late, which is a failure).
  bool wait(const Message& message, double seconds = 0);

  bool failed() const { return failed_.load(); }

  // Delivers what was handed over, and ends the thread; whoever still waits hears that the communicator is
  // closed.
  void close() noexcept;

 private:
  struct Arrival {  // nobody has asked for it yet
    int source;
    Packet packet;
    std::vector<std::byte> payload;
    MessageHandle own;  // from this rank to itself
  };
  struct Outgoing {
    Packet packet;
    MessageHandle message;  // null where the packet has no payload
  };

  Link& link(int peer) const { return *setup_.links[static_cast<std::size_t>(peer)]; }
  void require_working() const;
  void arrive(int source, const Packet& packet, const std::byte* payload);
  void begin(const MessageHandle& receive, int source, const Packet& packet, const std::byte* payload,
             const MessageHandle& own);
  void fetch(const MessageHandle& receive, int source, const Packet& offer);
  void take_part(int source, const Packet& packet, const std::byte* payload);
  void post(int peer, Packet packet, MessageHandle message);
  bool hand_over(int peer);
  void complete(const MessageHandle& message);
  bool progress();
  bool try_progress();
  bool links_are_idle() const;
  bool must_progress() const;
  void deliver();
  void fail(const std::exception& error) noexcept;
  std::string late(const Message& message) const;
  void start_thread();
  void look_after();

  Setup setup_;
  std::vector<Link*> distinct_links_;
  std::vector<int> queue_peers_;  // ranks to which something waits to be handed over, each once
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::string failure_;

  std::uint64_t num_offered_ = 0;
  std::list<MessageHandle> posted_;  // receives that nothing has come for, in order
  std::list<Arrival> arrivals_;      // in order
  std::vector<std::deque<Outgoing>> outgoing_;
  std::unordered_map<std::uint64_t, MessageHandle> lent_;
  std::vector<std::unordered_map<std::uint64_t, MessageHandle>> coming_in_parts_;  // by source and its number

  std::thread thread_;
  std::condition_variable wake_;
  bool asleep_ = false, closed_ = false;
  std::size_t num_open_ = 0;
  std::atomic<int> num_waiting_{0};
};

}  // namespace dlscale
