#include "waiting.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <utility>

namespace dlscale {
namespace {

constexpr double kSpinSeconds = 20e-6;
constexpr double kYieldSeconds = 200e-6;
constexpr int kOversubscribedYields = 8;
constexpr double kShortSleep = 1e-3;
constexpr double kLongSleep = 20e-3;
constexpr double kCheckSeconds = 10e-3;
constexpr double kPatienceWithOthers = 1.2;

enum Cause : std::uint32_t { kDead = 1, kStopped, kTimedOut, kFailed, kCircle };

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The futex is the lower half of the counter: it changes with every announcement.
std::uint32_t* word_of(const std::atomic<std::uint64_t>& value) {
  auto* words = reinterpret_cast<std::uint32_t*>(const_cast<std::atomic<std::uint64_t>*>(&value));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return words + 1;
#else
  return words;
#endif
}

void sleep_on(const std::atomic<std::uint64_t>& value, std::uint64_t seen, double seconds) {
  timespec limit{};
  limit.tv_nsec = static_cast<long>(seconds * 1e9);
  syscall(SYS_futex, word_of(value), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &limit, nullptr, 0);
}

void wake_all(const std::atomic<std::uint64_t>& value) {
  syscall(SYS_futex, word_of(value), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

double monotonic_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Waiting::Waiting(const Watch& watch, FailureNote* note, std::vector<WaitsFor*> waits_for, int rank,
                 std::vector<int> global_ranks, bool oversubscribed, double timeout_seconds)
    : watch_(watch),
      note_(note),
      waits_for_(std::move(waits_for)),
      rank_(rank),
      global_ranks_(std::move(global_ranks)),
      oversubscribed_(oversubscribed),
      timeout_seconds_(timeout_seconds) {}

void Waiting::announce(Flag* flag, std::uint64_t value) const {
  between_steps();
  if (oversubscribed_) {
    flag->value.store(value, std::memory_order_seq_cst);
    between_steps();
    if (flag->num_sleepers.load(std::memory_order_seq_cst)) wake_all(flag->value);
  } else {
    flag->value.store(value, std::memory_order_release);
    between_steps();
    if (flag->num_sleepers.load(std::memory_order_relaxed)) wake_all(flag->value);
  }
}

void Waiting::wait_long(Flag* flag, std::uint64_t value, int owner) {
  const auto there = [&] { return flag->value.load(std::memory_order_acquire) >= value; };
  if (!oversubscribed_) {
    const double spin_until = monotonic_seconds() + kSpinSeconds;
    do {
      for (int i = 0; i < 50; ++i) {
        if (there()) return;
        pause_cpu();
      }
      if (progress_) progress_();
    } while (monotonic_seconds() < spin_until);
  }
  const double start = monotonic_seconds();
  for (int i = 0; oversubscribed_ ? i < kOversubscribedYields : monotonic_seconds() < start + kYieldSeconds;
       ++i) {
    if (there()) return;
    if (progress_) progress_();
    sched_yield();
  }
  own_waits_for().store(static_cast<std::uint32_t>(owner + 1), std::memory_order_relaxed);
  Patience patience(start);
  for (double seconds = kShortSleep;; seconds = std::min(2 * seconds, kLongSleep)) {
    if (progress_) {
      progress_();
      if (there()) break;
      sched_yield();
    } else {
      flag->num_sleepers.fetch_add(1, std::memory_order_seq_cst);
      between_steps();
      const std::uint64_t seen = flag->value.load(std::memory_order_seq_cst);
      between_steps();
      if (seen < value) sleep_on(flag->value, seen, seconds);
      flag->num_sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
    if (there()) break;
    raise_noted();
    const double now = monotonic_seconds();
    if (now < next_check_) continue;
    next_check_ = now + kCheckSeconds;
    const Life life = watch_.life_of(owner);
    // It may have announced with its last breath.
    if (life == Life::dead && !there()) raise(owner, kDead);
    raise_if_timed_out(owner, patience.look(now));
  }
  own_waits_for().store(0, std::memory_order_relaxed);
}

// Whoever waits himself is not to blame, but who he waits for. That other nodes are silent is found out by
// who waits for them, a little later.
void Waiting::raise_if_timed_out(int owner, double seconds) const {
  if (seconds < timeout_seconds_) return;
  int end = owner;
  for (std::size_t i = 0; i < waits_for_.size(); ++i) {
    if (watch_.life_of(end) == Life::stopped) raise(end, kStopped);
    const std::uint32_t next = waits_for_[static_cast<std::size_t>(end)]->who.load(std::memory_order_relaxed);
    if (next == WaitsFor::kOtherNodes && seconds < kPatienceWithOthers * timeout_seconds_ + 1) return;
    if (next == 0 || next == WaitsFor::kOtherNodes) raise(end, kTimedOut);
    end = static_cast<int>(next) - 1;
  }
  raise(end, kCircle);  // longer than there are ranks
}

void Waiting::check_others() {
  const double now = monotonic_seconds();
  if (now < next_check_) return;
  next_check_ = now + kCheckSeconds;
  raise_noted();
  for (std::size_t q = 0; q < global_ranks_.size(); ++q) {
    if (watch_.life_of(static_cast<int>(q)) == Life::dead) raise(static_cast<int>(q), kDead);
  }
}

void Waiting::note_own_failure(const std::string& text) {
  std::uint32_t none = 0;
  if (!note_->code.compare_exchange_strong(none, FailureNote::kBeingWritten)) return;
  between_steps();
  note_->text[text.copy(note_->text, FailureNote::kTextBytes - 1)] = '\0';
  note_->code.store(static_cast<std::uint32_t>(rank_ + 1) | (kFailed << 24), std::memory_order_release);
}

void Waiting::raise_difference(int owner) const {
  throw std::runtime_error(
      "rank " + std::to_string(global_ranks_[static_cast<std::size_t>(owner)]) +
      " gave another length, dtype or operation; give buffers equal in dtype and length on "
      "all ranks (debug=True says what each rank gave)");
}

void Waiting::raise_unreachable(int owner, int error) const {
  raise_noted();
  if (error == ESRCH || watch_.life_of(owner) == Life::dead) raise(owner, kDead);
  throw std::runtime_error("the memory of rank " +
                           std::to_string(global_ranks_[static_cast<std::size_t>(owner)]) +
                           " can no longer be copied: " + std::strerror(error) +
                           "; set single_copy to false to stage messages instead");
}

void Waiting::raise_noted() const {
  const std::uint32_t code = note_->code.load(std::memory_order_acquire);
  if (code != 0 && code != FailureNote::kBeingWritten) throw RankFailure(describe(code));
}

void Waiting::raise(int owner, std::uint32_t cause) const {
  const std::uint32_t mine = static_cast<std::uint32_t>(owner + 1) | (cause << 24);
  std::uint32_t first = 0;
  note_->code.compare_exchange_strong(first, mine);
  throw RankFailure(describe(first && first != FailureNote::kBeingWritten ? first : mine));
}

std::string Waiting::describe(std::uint32_t code) const {
  if (code >> 24 == kFailed) return note_->text;
  const std::size_t q = (code & 0xffffff) - 1;
  const std::string who = "rank " + std::to_string(global_ranks_[q]) +
                          (watch_.process(static_cast<int>(q))
                               ? " (process " + std::to_string(watch_.process(static_cast<int>(q))) + ")"
                               : "");
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%g s", timeout_seconds_);
  switch (code >> 24) {
    case kDead:
      return who + " is dead: its process ended while others waited for it; look at its last output";
    case kStopped:
      return who + " is late: it is alive but stopped (SIGSTOP, or a debugger), and others waited " +
             seconds + "; continue it, or raise timeout_seconds";
    case kTimedOut:
      return who + " is late: it is alive but did not join within " + seconds +
             "; does every rank call the same operations? A longer wait: timeout_seconds";
    default:
      return who + " and others wait for each other: they called different operations, or gave buffers of " +
             "different lengths; call the same on all ranks (debug=True says what each rank called)";
  }
}

}  // namespace dlscale
