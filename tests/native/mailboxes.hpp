// Messages between ranks that are threads of one process, so that sanitizers see both sides of every
// transfer.
//
// Nothing is buffered: a message goes from the sender's memory straight to the receiver's once both have
// asked, and until then the sender's may not change. Whoever asks second copies.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "network/transport.hpp"

namespace dlscale::network {

class Mailboxes {
 public:
  struct Request {
    std::byte* data;
    std::size_t num_bytes;
    bool complete = false;
    bool too_long = false;
  };

  void send(int from, int to, std::shared_ptr<Request> request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Box& box = boxes_[{from, to}];
    box.sent.push_back(std::move(request));
    deliver(box);
  }

  void receive(int from, int to, std::shared_ptr<Request> request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Box& box = boxes_[{from, to}];
    box.awaited.push_back(std::move(request));
    deliver(box);
  }

  Request look(const Request& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return request;
  }

  // Nothing is copied from or to this rank's memory from now on; its empty messages still arrive.
  void forget(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [ends, box] : boxes_) {
      if (ends.first == rank) {
        box.sent.erase(std::remove_if(box.sent.begin(), box.sent.end(),
                                      [](const auto& request) { return request->num_bytes > 0; }),
                       box.sent.end());
      }
      if (ends.second == rank) box.awaited.clear();
    }
  }

 private:
  struct Box {
    std::deque<std::shared_ptr<Request>> sent, awaited;
  };

  static void deliver(Box& box) {
    while (!box.sent.empty() && !box.awaited.empty()) {
      Request& from = *box.sent.front();
      Request& to = *box.awaited.front();
      to.too_long = from.num_bytes > to.num_bytes;
      to.num_bytes = std::min(from.num_bytes, to.num_bytes);
      if (to.num_bytes > 0) std::memcpy(to.data, from.data, to.num_bytes);
      from.complete = to.complete = true;
      box.sent.pop_front();
      box.awaited.pop_front();
    }
  }

  std::mutex mutex_;
  std::map<std::pair<int, int>, Box> boxes_;
};

class MailboxTransport : public Transport {
 public:
  // A message that has come is noticed now or later, by chance.
  MailboxTransport(Mailboxes& boxes, Group group) : boxes_(boxes), group_(group), chance_(group.rank) {}
  ~MailboxTransport() override { boxes_.forget(rank()); }

  Group group() const override { return group_; }
  void reserve(std::size_t num_requests) override { requests_.resize(num_requests); }

  void send(std::size_t request, int peer, const std::byte* data, std::size_t num_bytes) override {
    // Only read, for it is sent.
    boxes_.send(rank(), peer, take(request, const_cast<std::byte*>(data), num_bytes));
  }
  void receive(std::size_t request, int peer, std::byte* data, std::size_t num_bytes) override {
    boxes_.receive(peer, rank(), take(request, data, num_bytes));
  }

  std::optional<std::size_t> test(std::size_t request) override {
    if (chance_() % 4 == 0) return std::nullopt;
    const Mailboxes::Request seen = boxes_.look(*requests_.at(request));
    if (!seen.complete) return std::nullopt;
    requests_[request].reset();
    if (seen.too_long) throw std::runtime_error("message truncated");
    return seen.num_bytes;
  }

  void notify(int peer) noexcept override {
    boxes_.send(rank(), peer, std::make_shared<Mailboxes::Request>(Mailboxes::Request{nullptr, 0}));
  }

  void abort() noexcept override {
    boxes_.forget(rank());
    for (auto& request : requests_) request.reset();
  }

 private:
  int rank() const { return static_cast<int>(group_.rank); }

  std::shared_ptr<Mailboxes::Request> take(std::size_t request, std::byte* data, std::size_t num_bytes) {
    if (requests_.at(request)) throw std::logic_error("a request is used while it is under way");
    requests_[request] = std::make_shared<Mailboxes::Request>(Mailboxes::Request{data, num_bytes});
    return requests_[request];
  }

  Mailboxes& boxes_;
  Group group_;
  std::minstd_rand chance_;
  std::vector<std::shared_ptr<Mailboxes::Request>> requests_;
};

}  // namespace dlscale::network
