// Several cores of a rank at one piece of work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "../geometry.hpp"

namespace dlscale {

// The caller and its helpers take pieces until none is left. Who comes late, or has no core at that moment,
// takes fewer, and nobody waits for a piece that was not begun.
//
// One thread calls, always the same or one after the other. Helpers are started when they are first needed;
// they wait for the next work for a moment, and then sleep.
class Crew {
 public:
  using Work = std::function<void(Range)>;

  // `num_cores` with the caller's, at least 1. Less than `least_bytes` is not shared: handing work over takes
  // about a microsecond, in which a core moves some 16 KiB.
  Crew(std::size_t num_cores, std::size_t least_bytes) : num_cores_(num_cores), least_bytes_(least_bytes) {}
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::size_t num_cores() const { return num_cores_; }
  // Between two calls of `share`. Helpers that are no longer needed sleep.
  void set_num_cores(std::size_t num_cores) { num_cores_ = num_cores; }

  // Calls `work` for ranges that make up `whole`, of elements of that width, cut at whole cache lines from
  // its begin. Returns when all are done, and throws one of the exceptions that they threw.
  template <typename AnyWork>
  void share(Range whole, std::size_t element, const AnyWork& work) {
    if (num_cores_ > 1 && whole.size() * element >= least_bytes_) return share_pieces(whole, element, work);
    if (whole.size()) work(whole);
  }

 private:
  void share_pieces(Range whole, std::size_t element, const Work& work);
  void start(std::size_t num_helpers);
  void help();
  bool take_piece();
  bool wait_for_work_after(std::uint64_t* seen);

  // Low half: pieces that nobody took yet. High half: the number of the work, so that a helper that looked at
  // an earlier one takes nothing of this.
  static constexpr std::uint64_t kOneWork = std::uint64_t{1} << 32;
  static std::uint64_t num_left(std::uint64_t claim) { return claim & (kOneWork - 1); }

  std::size_t num_cores_;
  const std::size_t least_bytes_;
  std::vector<std::thread> helpers_;
  int process_ = 0;  // that has the helpers: a forked child has none
  std::atomic<std::uint64_t> claim_{0};
  std::atomic<std::uint64_t> num_unfinished_{0};

  // Of the present work. Written before it is offered, and read by who took a piece of it.
  const Work* work_ = nullptr;
  Range whole_{};
  std::size_t piece_ = 0;

  std::mutex mutex_;
  std::condition_variable offered_;
  std::atomic<int> num_sleepers_{0};
  std::exception_ptr error_;  // under the mutex
  bool closed_ = false;       // likewise
};

}  // namespace dlscale
