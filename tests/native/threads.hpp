// Ranks that are threads of this process, so that sanitizers see both sides of every access.
#pragma once

#include <sched.h>
#include <time.h>

#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "node/bootstrap.hpp"

namespace dlscale::testing {

// Where the ranks of one group exchange a few bytes, each time in two turns: all leave theirs, all take all.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size) {}

  int size() const { return size_; }

  void allgather(int rank, const void* mine, void* all, std::size_t num_bytes) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      table_.resize(static_cast<std::size_t>(size_) * num_bytes);
      if (num_bytes) std::memcpy(&table_[static_cast<std::size_t>(rank) * num_bytes], mine, num_bytes);
      wait_for_all(lock);
      if (num_bytes) std::memcpy(all, table_.data(), table_.size());
      wait_for_all(lock);
    }
  }

 private:
  void wait_for_all(std::unique_lock<std::mutex>& lock) {
    const std::size_t turn = turn_;
    if (++num_waiting_ == size_) {
      num_waiting_ = 0;
      ++turn_;
      all_there_.notify_all();
    }
    all_there_.wait(lock, [&] { return turn_ != turn; });
  }

  int size_;
  int num_waiting_ = 0;
  std::size_t turn_ = 0;
  std::vector<std::byte> table_;
  std::mutex mutex_;
  std::condition_variable all_there_;
};

class ThreadBootstrap : public Bootstrap {
 public:
  ThreadBootstrap(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return meeting_.size(); }
  bool in_process() const override { return true; }
  void allgather(const void* mine, void* all, std::size_t num_bytes) override {
    meeting_.allgather(rank_, mine, all, num_bytes);
  }
  // A rank's memory is gone for all when its thread frees it, unlike that of a process.
  void wait_for_all() { everyones('\0'); }

 private:
  Meeting& meeting_;
  int rank_;
};

// Calls `rank(bootstrap)` on a thread per rank. An exception ends the program: the others might wait forever.
template <typename Rank>
void on_ranks(int size, Rank rank) {
  Meeting meeting(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&meeting, &rank, r] {
      try {
        ThreadBootstrap bootstrap(meeting, r);
        rank(bootstrap);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d of %d: %s\n", r, meeting.size(), error.what());
        std::_Exit(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Nothing, a turn for other threads, or a nap of up to 2 ms: longer than the spin, so that ranks fall asleep.
class Hesitation {
 public:
  explicit Hesitation(std::uint64_t seed) : chance_(seed) {}
  void operator()() {
    const auto kind = chance_() % 16;
    if (kind < 8) return;
    if (kind < 13) {
      for (auto i = chance_() % 4; i > 0; --i) sched_yield();
      return;
    }
    const timespec nap{0, static_cast<long>(chance_() % (kind < 15 ? 100'000 : 2'000'000))};
    nanosleep(&nap, nullptr);
  }

 private:
  std::mt19937_64 chance_;
};

// Local rank q is called q in messages.
inline std::vector<int> names_of_ranks(int size) {
  std::vector<int> names;
  for (int q = 0; q < size; ++q) names.push_back(q);
  return names;
}

}  // namespace dlscale::testing
