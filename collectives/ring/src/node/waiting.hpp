// How ranks of a node wait for each other's flags, and what they say when nothing comes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "flags.hpp"
#include "watch.hpp"

namespace dlscale {

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
// sleep until woken; and while it sleeps look again and again whether the rank waited for still lives. Every
// wait ends: with the value, or by an exception that names a rank that is dead, stopped, or late by the
// timeout.
//
// Sleeping: a waiter adds itself to `num_sleepers`, looks at the value once more, and sleeps only if the
// kernel finds that same value; a rank that announces stores the value and then looks at `num_sleepers`.
// Where ranks outnumber CPUs all four are sequentially consistent, so one of the two sees the other, and no
// sleeper is overlooked. Elsewhere the store is a plain release, faster by a fence, and a sleeper that is
// overlooked looks by itself when its nap ends.
class Waiting {
 public:
  // `waits_for[q]` is kept by local rank q, this one is `rank`.
  Waiting(const Watch& watch, FailureNote* note, std::vector<WaitsFor*> waits_for, int rank,
          std::vector<int> global_ranks, bool oversubscribed, double timeout_seconds);

  // The release side of a hand-over, by the flag's owner.
  void announce(Flag* flag, std::uint64_t value) const;

  // The acquire side: returns when the flag of local rank `owner` is at least `value`. Throws RankFailure.
  void until(Flag* flag, std::uint64_t value, int owner) {
    between_steps();
    if (flag->value.load(std::memory_order_acquire) < value) wait_long(flag, value, owner);
    between_steps();
  }

  // Throws std::runtime_error if local rank `owner` is in another operation than this rank.
  void compare(std::uint32_t mine, std::uint32_t theirs, int owner) const {
    if (mine != theirs) raise_difference(owner);
  }
  [[noreturn]] void raise_difference(int owner) const;

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
  void wait_long(Flag* flag, std::uint64_t value, int owner);
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
