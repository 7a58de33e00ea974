// Counters that ranks announce to each other, and how to wait for them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../reduction/types.hpp"
#include "watch.hpp"

namespace dlscale {

// Written by one rank, read by all; only grows, so that it never has to be reset. Two cache lines apart from
// the next one, since CPUs fetch lines in pairs.
struct alignas(128) Counter {
  std::atomic<std::uint64_t> value;
  std::atomic<std::uint32_t> num_sleepers;
  // What the owner's operation is, by turns of operations, of which a rank can be three ahead: read with the
  // counter, it costs no further miss.
  std::atomic<std::uint32_t> tags[4];
  // What else it tells the others with the number, by turns of two operations: who writes one knows that all
  // have read its last use.
  std::uint64_t words[2];
};
static_assert(sizeof(Counter) == 128 && offsetof(Counter, words) + sizeof(Counter::words) <= 64,
              "number and words share one line");

// An operation in 32 bits, for ranks to compare: a difference means that they disagree.
inline std::uint32_t tag_of(std::size_t count, Type type, Op op, std::size_t kind) {
  std::uint64_t mixed =
      count * 64 + static_cast<std::size_t>(type) * 8 + static_cast<std::size_t>(op) * 2 + kind;
  mixed *= 0x9e3779b97f4a7c15u;  // Fibonacci hashing: the upper bits depend on all
  return static_cast<std::uint32_t>(mixed >> 32);
}

// The first failure of the group, for all ranks to see: 0, or who (local rank + 1) and how. The text is there
// once the code says that a rank told of its own failure.
struct alignas(128) FailureNote {
  static constexpr std::uint32_t kBeingWritten = 0xffffffff;
  static constexpr std::size_t kTextBytes = 400;
  std::atomic<std::uint32_t> code;
  char text[kTextBytes];
};

// Whom a rank has been waiting for, for longer than a moment: nobody (0), a local rank (+ 1), or other nodes.
struct alignas(128) WaitsFor {
  static constexpr std::uint32_t kOtherNodes = 0xffffff;
  std::atomic<std::uint32_t> who;
};

// For how long a rank has waited while it was running: a job that is suspended as a whole is not late.
class Patience {
 public:
  explicit Patience(double now) : last_(now) {}
  // Seconds so far. To be asked often: of the time since the last look little counts.
  double look(double now) {
    waited_ += std::min(now - last_, kMostSeconds);
    last_ = now;
    return waited_;
  }

 private:
  static constexpr double kMostSeconds = 0.25;
  double last_;
  double waited_ = 0;
};

// A rank that others wait for is dead, stopped or late.
struct RankFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Waits in four stages: spin, for as long as a cache line needs; yield, for a rank that shares this CPU;
// sleep until woken; and while it sleeps looks again and again whether the rank waited for still lives.
//
// Where ranks outnumber CPUs the spin is left out. There an announcement is a sequentially consistent store,
// so that no sleeper is overlooked; elsewhere it is a plain release store, and a sleeper overlooked in a race
// looks by itself after a millisecond.
class Waiting {
 public:
  // `waits_for[q]` is kept by local rank q, this one is `rank`.
  Waiting(const Watch& watch, FailureNote* note, std::vector<WaitsFor*> waits_for, int rank,
          std::vector<int> global_ranks, bool oversubscribed, double timeout_seconds);

  void announce(std::atomic<std::uint64_t>* value, std::atomic<std::uint32_t>* num_sleepers,
                std::uint64_t number) const;
  void announce(Counter* counter, std::uint64_t number) const {
    announce(&counter->value, &counter->num_sleepers, number);
  }

  // Returns when `value` is at least `number`; local rank `owner` announces it. Throws RankFailure.
  void until(const std::atomic<std::uint64_t>& value, std::atomic<std::uint32_t>* num_sleepers,
             std::uint64_t number, int owner) {
    if (value.load(std::memory_order_acquire) >= number) return;
    wait_long(value, num_sleepers, number, owner);
  }
  void until(Counter* counter, std::uint64_t number, int owner) {
    until(counter->value, &counter->num_sleepers, number, owner);
  }

  // Throws std::runtime_error if local rank `owner` is in another operation than this rank.
  void compare(std::uint32_t mine, std::uint32_t theirs, int owner) const {
    if (mine != theirs) raise_difference(owner);
  }

  // Called now and then while waiting, to move what else is under way; sleeping is left out then.
  void set_progress(std::function<void()> progress) { progress_ = std::move(progress); }

  // For waits for other nodes: throws RankFailure if any rank of the node died or failed. Looks at the
  // processes at most every 10 ms.
  void check_others();

  // Notes a failure of this rank, in words for the others to say. The first one stays.
  void note_own_failure(const std::string& text);

  // Says to the node that this rank waits for other nodes, or no longer.
  void set_waiting_for_other_nodes(bool waiting) {
    own_waits_for().store(waiting ? WaitsFor::kOtherNodes : 0, std::memory_order_relaxed);
  }

  // Throws what it means that the kernel could not copy from or to the memory of local rank `owner`.
  [[noreturn]] void raise_unreachable(int owner, int error) const;

  bool oversubscribed() const { return oversubscribed_; }
  double timeout_seconds() const { return timeout_seconds_; }

 private:
  void wait_long(const std::atomic<std::uint64_t>& value, std::atomic<std::uint32_t>* num_sleepers,
                 std::uint64_t number, int owner);
  [[noreturn]] void raise_difference(int owner) const;
  std::atomic<std::uint32_t>& own_waits_for() { return waits_for_[static_cast<std::size_t>(rank_)]->who; }
  void raise_if_timed_out(int owner, double seconds) const;
  void raise_noted() const;
  [[noreturn]] void raise(int owner, std::uint32_t cause) const;
  std::string describe(std::uint32_t code) const;

  const Watch& watch_;
  FailureNote* note_;
  std::vector<WaitsFor*> waits_for_;
  int rank_;
  std::vector<int> global_ranks_;
  bool oversubscribed_;
  double timeout_seconds_;
  double next_check_ = 0;
  std::function<void()> progress_;
};

double monotonic_seconds();

}  // namespace dlscale
