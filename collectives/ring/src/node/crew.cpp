#include "crew.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "control_block.hpp"
#include "waiting.hpp"

namespace dlscale {
namespace {

constexpr std::size_t kPiecesPerCore = 4;  // so that a late one costs a fraction of the work
constexpr double kSpinSeconds = 50e-6;

}  // namespace

Crew::~Crew() {
  if (helpers_.empty()) return;
  if (getpid() != process_) {
    for (std::thread& helper : helpers_) helper.detach();
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  offered_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Crew::share_pieces(Range whole, std::size_t element, const Work& work) {
  const std::size_t num_bytes = whole.size() * element;
  start(num_cores_ - 1);
  work_ = &work;
  whole_ = whole;
  const std::size_t bytes = std::max(num_bytes / (num_cores_ * kPiecesPerCore), least_bytes_ / 8);
  piece_ = std::max<std::size_t>(bytes / kLine, 1) * kLine / element;
  const std::uint64_t num_pieces = (whole.size() + piece_ - 1) / piece_;
  num_unfinished_.store(num_pieces, std::memory_order_relaxed);
  const std::uint64_t number = claim_.load(std::memory_order_relaxed) / kOneWork + 1;
  claim_.store(number * kOneWork + num_pieces, std::memory_order_seq_cst);
  if (num_sleepers_.load(std::memory_order_seq_cst)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    offered_.notify_all();
  }
  while (take_piece()) {
  }
  while (num_unfinished_.load(std::memory_order_acquire)) sched_yield();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool Crew::take_piece() {
  std::uint64_t seen = claim_.load(std::memory_order_acquire);
  do {
    if (!num_left(seen)) return false;
  } while (!claim_.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel));
  const std::size_t begin = whole_.begin + (num_left(seen) - 1) * piece_;
  try {
    (*work_)({begin, std::min(begin + piece_, whole_.end)});
  } catch (...) {
    const std::lock_guard<std::mutex> lock(mutex_);
    error_ = std::current_exception();
  }
  num_unfinished_.fetch_sub(1, std::memory_order_release);
  return true;
}

void Crew::start(std::size_t num_helpers) {
  process_ = getpid();
  while (helpers_.size() < num_helpers) helpers_.emplace_back([this] { help(); });
}

void Crew::help() {
  std::uint64_t seen = 0;
  while (wait_for_work_after(&seen)) {
    while (take_piece()) {
    }
  }
}

// `seen` becomes the claim once that is of another work; false when the crew is closed.
bool Crew::wait_for_work_after(std::uint64_t* seen) {
  const std::uint64_t before = *seen / kOneWork;
  const auto is_new = [&](std::uint64_t claim) { return claim / kOneWork != before; };
  std::uint64_t claim = claim_.load(std::memory_order_acquire);
  for (const double end = monotonic_seconds() + kSpinSeconds; !is_new(claim) && monotonic_seconds() < end;) {
    claim = claim_.load(std::memory_order_acquire);
  }
  *seen = claim;
  if (is_new(claim)) return true;
  std::unique_lock<std::mutex> lock(mutex_);
  num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
  offered_.wait(lock, [&] { return closed_ || is_new(claim_.load(std::memory_order_seq_cst)); });
  num_sleepers_.fetch_sub(1, std::memory_order_relaxed);
  *seen = claim_.load(std::memory_order_acquire);
  return !closed_;
}

}  // namespace dlscale
