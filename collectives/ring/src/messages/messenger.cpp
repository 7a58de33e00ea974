#include "messenger.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace dlscale {
namespace {

constexpr double kSpinSeconds = 20e-6;
constexpr double kYieldSeconds = 200e-6;
constexpr double kShortSleep = 1e-3, kLongSleep = 20e-3;
constexpr double kNetworkNap = 50e-6;  // what comes from other nodes rings no bell
constexpr double kLookSeconds = 10e-3;
constexpr double kDeliverySeconds = 1;
constexpr std::chrono::microseconds kBusyNap{200}, kIdleNap{1000};
constexpr int kMostIdleNaps = 100;  // then the thread sleeps until it is woken

bool matches(const Message& receive, int source, std::int64_t tag) {
  return receive.tag == tag && (receive.peer == Messenger::kAnySource || receive.peer == source);
}

struct Counted {
  explicit Counted(std::atomic<int>* count_) : count(count_) { ++*count; }
  ~Counted() { --*count; }
  std::atomic<int>* count;
};

}  // namespace

Messenger::Messenger(Setup setup) : setup_(std::move(setup)) {
  outgoing_.resize(setup_.links.size());
  coming_in_parts_.resize(setup_.links.size());
  for (Link* each : setup_.links) {
    if (each && std::find(distinct_links_.begin(), distinct_links_.end(), each) == distinct_links_.end()) {
      distinct_links_.push_back(each);
    }
  }
}

Messenger::~Messenger() { close(); }

void Messenger::require_working() const {
  if (failed()) throw std::runtime_error(failure_);
}

// ---- calls ----

MessageHandle Messenger::send(int peer, std::int64_t tag, const std::byte* data, std::size_t num_bytes,
                              bool open) {
  auto message = std::make_shared<Message>();
  message->peer = peer;
  message->tag = tag;
  message->data = const_cast<std::byte*>(data);  // only read
  message->num_bytes = num_bytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  require_working();
  message->open = open;
  num_open_ += open;
  Packet packet{Packet::Kind::offer, 0, tag, ++num_offered_, num_bytes, 0};
  try {
    if (peer == setup_.rank) {
      const auto waiting =
          std::find_if(posted_.begin(), posted_.end(), [&](const auto& r) { return matches(*r, peer, tag); });
      if (waiting == posted_.end()) {
        arrivals_.push_back({peer, packet, {}, message});
      } else {
        const MessageHandle receive = *waiting;
        posted_.erase(waiting);
        begin(receive, peer, packet, nullptr, message);
      }
    } else if (num_bytes <= link(peer).most_at_once()) {
      packet.kind = Packet::Kind::whole;
      packet.payload_bytes = static_cast<std::uint32_t>(num_bytes);
      post(peer, packet, message);
    } else {
      lent_.emplace(packet.id, message);
      link(peer).lend(peer, &packet, data, [this, id = packet.id] {
        const auto lent = lent_.find(id);
        complete(lent->second);
        lent_.erase(lent);
      });
      post(peer, packet, nullptr);
    }
    if (must_progress()) start_thread();
  } catch (const std::exception& error) {
    fail(error);
    throw;
  }
  return message;
}

MessageHandle Messenger::receive(int peer, std::int64_t tag, std::byte* data, std::size_t num_bytes,
                                 bool open) {
  auto message = std::make_shared<Message>();
  message->peer = peer;
  message->tag = tag;
  message->data = data;
  message->num_bytes = num_bytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  require_working();
  message->open = open;
  num_open_ += open;
  try {
    const auto there = std::find_if(arrivals_.begin(), arrivals_.end(), [&](const Arrival& arrival) {
      return matches(*message, arrival.source, arrival.packet.tag);
    });
    if (there == arrivals_.end()) {
      posted_.push_back(message);
    } else {
      const Arrival arrival = std::move(*there);
      arrivals_.erase(there);
      begin(message, arrival.source, arrival.packet, arrival.payload.data(), arrival.own);
    }
    if (must_progress()) start_thread();
  } catch (const std::exception& error) {
    fail(error);
    throw;
  }
  return message;
}

bool Messenger::wait(const Message& message, double seconds) {
  const auto done = [&] { return message.done.load(std::memory_order_acquire); };
  if (done()) return true;
  const Counted waiting(&num_waiting_);  // from here on `close` waits for this one, or has been there before
  if (failed()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    require_working();
  }
  Counter* bell = setup_.bell;
  double start = monotonic_seconds(), idle_since = start, next_look = start + kLookSeconds;
  double nap = kShortSleep;
  Patience patience(start);
  for (;;) {
    for (int i = 0; i < (setup_.waiting.oversubscribed() ? 1 : 20); ++i) {
      const bool moved = try_progress();
      if (done()) return true;
      if (!moved) continue;
      idle_since = monotonic_seconds();
      patience = Patience(idle_since);
      nap = kShortSleep;
    }
    const double now = monotonic_seconds();
    if (seconds > 0 && now > start + seconds) return false;
    if (now >= next_look) {
      next_look = now + kLookSeconds;
      try {
        const std::lock_guard<std::mutex> lock(mutex_);
        setup_.waiting.check_others();
        setup_.look();
        if (patience.look(now) > setup_.waiting.timeout_seconds()) throw RankFailure(late(message));
      } catch (const std::exception& error) {
        const std::lock_guard<std::mutex> lock(mutex_);
        fail(error);
        throw;
      }
    }
    const double idle = now - idle_since;
    if (idle < kSpinSeconds && !setup_.waiting.oversubscribed()) continue;
    if (idle < kYieldSeconds) {
      sched_yield();
      continue;
    }
    bell->num_sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint64_t seen = bell->value.load(std::memory_order_seq_cst);
    try {
      if (!try_progress() && !done()) {
        Waiting::sleep(bell, seen, setup_.several_nodes ? kNetworkNap : nap);
        nap = std::min(2 * nap, kLongSleep);
      }
    } catch (...) {
      bell->num_sleepers.fetch_sub(1, std::memory_order_seq_cst);
      throw;
    }
    bell->num_sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void Messenger::close() noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    closed_ = true;
    if (!failed()) {
      deliver();
      failure_ = "this ring communicator is closed";
      failed_.store(true);
    }
    for (Link* each : distinct_links_) each->abort();
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  while (num_waiting_.load() > 0) sched_yield();
}

void Messenger::deliver() {
  try {
    for (const double end = monotonic_seconds() + kDeliverySeconds;
         !(queue_peers_.empty() && links_are_idle()) && monotonic_seconds() < end; sched_yield()) {
      progress();
      setup_.waiting.check_others();
    }
  } catch (const std::exception&) {
    // Whoever waits for it will say so.
  }
}

// ---- what comes ----

void Messenger::arrive(int source, const Packet& packet, const std::byte* payload) {
  switch (packet.kind) {
    case Packet::Kind::whole:
    case Packet::Kind::offer: {
      const auto waiting = std::find_if(posted_.begin(), posted_.end(),
                                        [&](const auto& r) { return matches(*r, source, packet.tag); });
      if (waiting == posted_.end()) {
        arrivals_.push_back({source, packet, {payload, payload + packet.payload_bytes}, nullptr});
      } else {
        const MessageHandle receive = *waiting;
        posted_.erase(waiting);
        begin(receive, source, packet, payload, nullptr);
      }
      break;
    }
    case Packet::Kind::taken:
    case Packet::Kind::wanted: {
      const auto lent = lent_.find(packet.id);
      const MessageHandle message = lent->second;
      lent_.erase(lent);
      if (packet.kind == Packet::Kind::taken) {
        complete(message);
      } else {
        post(source, {Packet::Kind::part, 0, message->tag, packet.id, message->num_bytes, 0}, message);
      }
      break;
    }
    case Packet::Kind::part:
      take_part(source, packet, payload);
      break;
    case Packet::Kind::filler:
      break;
  }
}

// The message that `packet` is, or announces, is the one that `receive` waits for.
void Messenger::begin(const MessageHandle& receive, int source, const Packet& packet,
                      const std::byte* payload, const MessageHandle& own) {
  receive->peer = source;
  if (packet.num_bytes != receive->num_bytes) {
    throw std::runtime_error("rank " + std::to_string(source) + " sent " + std::to_string(packet.num_bytes) +
                             " bytes to rank " + std::to_string(setup_.rank) + ", which expected " +
                             std::to_string(receive->num_bytes) +
                             (packet.tag < kLeastTag ? "; give lengths that agree on all ranks"
                                                     : "; give buffers of the same length to send and recv"));
  }
  if (own || packet.kind == Packet::Kind::whole) {
    const std::byte* from = own ? own->data : payload;
    if (packet.num_bytes && receive->data != from) std::memcpy(receive->data, from, packet.num_bytes);
    if (own) complete(own);
    return complete(receive);
  }
  fetch(receive, source, packet);
}

void Messenger::fetch(const MessageHandle& receive, int source, const Packet& offer) {
  const Packet answer{Packet::Kind::taken, 0, offer.tag, offer.id, offer.num_bytes, 0};
  switch (link(source).fetch(source, offer, receive->data, [this, receive] { complete(receive); })) {
    case Link::Fetch::under_way:
      break;
    case Link::Fetch::done:
      post(source, answer, nullptr);
      complete(receive);
      break;
    case Link::Fetch::refused:
      coming_in_parts_[static_cast<std::size_t>(source)].emplace(offer.id, receive);
      post(source, {Packet::Kind::wanted, 0, offer.tag, offer.id, offer.num_bytes, 0}, nullptr);
      break;
  }
}

void Messenger::take_part(int source, const Packet& packet, const std::byte* payload) {
  auto& coming = coming_in_parts_[static_cast<std::size_t>(source)];
  const auto found = coming.find(packet.id);
  const MessageHandle receive = found->second;
  std::memcpy(receive->data + receive->num_moved, payload, packet.payload_bytes);
  receive->num_moved += packet.payload_bytes;
  if (receive->num_moved < receive->num_bytes) return;
  coming.erase(found);
  complete(receive);
}

// ---- what goes ----

void Messenger::post(int peer, Packet packet, MessageHandle message) {
  auto& queue = outgoing_[static_cast<std::size_t>(peer)];
  if (queue.empty()) queue_peers_.push_back(peer);
  queue.push_back({packet, std::move(message)});
  if (queue.size() == 1) hand_over(peer);
  if (must_progress()) start_thread();
}

// As far as there is room. A message in parts stays in front until all have gone.
bool Messenger::hand_over(int peer) {
  auto& queue = outgoing_[static_cast<std::size_t>(peer)];
  bool any = false;
  while (!queue.empty()) {
    auto& [packet, message] = queue.front();
    const std::byte* payload = message ? message->data + message->num_moved : nullptr;
    if (packet.kind == Packet::Kind::part) {
      packet.payload_bytes = static_cast<std::uint32_t>(
          std::min(link(peer).most_at_once(), message->num_bytes - message->num_moved));
    }
    if (!link(peer).send(peer, packet, payload)) return any;
    any = true;
    if (message) {
      message->num_moved += packet.payload_bytes;
      if (message->num_moved < message->num_bytes) continue;
      complete(message);
    }
    queue.pop_front();
  }
  queue_peers_.erase(std::find(queue_peers_.begin(), queue_peers_.end(), peer));
  return any;
}

void Messenger::complete(const MessageHandle& message) {
  num_open_ -= message->open;
  message->done.store(true, setup_.waiting.publishing());
  setup_.waiting.ring(setup_.bell);  // another thread of this rank may sleep until it is
}

// ---- moving on ----

bool Messenger::progress() {
  bool any = false;
  for (Link* each : distinct_links_) {
    any |= each->receive([this](int source, const Packet& packet, const std::byte* payload) {
      arrive(source, packet, payload);
    });
  }
  for (const int peer : std::vector<int>(queue_peers_)) any |= hand_over(peer);
  return any;
}

bool Messenger::links_are_idle() const {
  return std::all_of(distinct_links_.begin(), distinct_links_.end(),
                     [](const Link* l) { return l->is_idle(); });
}

// Whether others may wait for this rank, whatever it does next.
bool Messenger::must_progress() const { return num_open_ > 0 || !queue_peers_.empty() || !links_are_idle(); }

// Where another thread is at it already there is nothing to do.
bool Messenger::try_progress() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  require_working();
  try {
    return progress();
  } catch (const std::exception& error) {
    fail(error);
    throw;
  }
}

void Messenger::fail(const std::exception& error) noexcept {
  if (failed()) return;
  failure_ = error.what();
  failed_.store(true);
  for (Link* each : distinct_links_) each->abort();
  setup_.propagate(error);
}

std::string Messenger::late(const Message& message) const {
  const bool receives = std::any_of(posted_.begin(), posted_.end(),
                                    [&](const MessageHandle& posted) { return posted.get() == &message; });
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%g s", setup_.waiting.timeout_seconds());
  const std::string peer = message.peer == kAnySource ? "every rank" : "rank " + std::to_string(message.peer);
  const std::string what = message.tag < kLeastTag ? "the message of a collective operation"
                                                   : "a message with tag " + std::to_string(message.tag);
  return peer + " is late: it did not " + (receives ? "send " : "take ") + what + (receives ? " to" : " of") +
         " rank " + std::to_string(setup_.rank) + " within " + seconds +
         "; does every send have its recv? A longer wait: timeout_seconds";
}

// ---- the thread ----

void Messenger::start_thread() {
  if (!setup_.threads) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { look_after(); });
  if (asleep_) wake_.notify_all();
}

// Naps in place of being woken: a call that does not wait then costs no system call, and who computes is
// hardly disturbed. While somebody waits there is nothing to do.
void Messenger::look_after() {
  std::unique_lock<std::mutex> lock(mutex_);
  int num_idle = 0;
  while (!closed_ && !failed()) {
    if (!must_progress() && ++num_idle > kMostIdleNaps) {
      asleep_ = true;
      wake_.wait(lock, [this] { return closed_ || must_progress(); });
      asleep_ = false;
    }
    bool moved = false;
    if (must_progress()) {
      num_idle = 0;
      try {
        if (num_waiting_.load() == 0) moved = progress();
      } catch (const std::exception& error) {
        fail(error);
        return;
      }
    }
    wake_.wait_for(lock, moved ? kBusyNap : kIdleNap, [this] { return closed_; });
  }
}

}  // namespace dlscale
