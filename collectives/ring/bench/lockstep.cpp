#include "lockstep.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace bench {
namespace {

constexpr int kSpins = 20000;  // some tens of microseconds, then the CPU is offered to others

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Lockstep::Lockstep(const std::string& file, MPI_Comm comm, bool yields) : yields_(yields) {
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &size_);
  num_bytes_ = sizeof(Line) * (static_cast<std::size_t>(size_) + 2);  // two more for `round_trip`
  const int descriptor = open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) throw std::runtime_error("cannot open " + file);
  const bool sized = rank_ != 0 || ftruncate(descriptor, static_cast<off_t>(num_bytes_)) == 0;
  MPI_Barrier(comm);
  void* place =
      sized ? mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) : MAP_FAILED;
  close(descriptor);
  if (place == MAP_FAILED) throw std::runtime_error("cannot map " + file);
  lines_ = static_cast<Line*>(place);
  MPI_Barrier(comm);
  if (rank_ == 0) unlink(file.c_str());  // whatever happens now, nothing is left behind
}

Lockstep::~Lockstep() { munmap(lines_, num_bytes_); }

void Lockstep::wait() {
  ++arrivals_;
  lines_[rank_].arrivals.store(arrivals_, std::memory_order_release);
  for (int other = 0; other < size_; ++other) wait_for(lines_[other], arrivals_);
}

double Lockstep::largest(double value) {
  lines_[rank_].value = value;
  wait();
  double largest = value;
  for (int other = 0; other < size_; ++other) largest = std::max(largest, lines_[other].value);
  wait();  // until all have read
  return largest;
}

void Lockstep::wait_for(const Line& line, std::uint64_t arrivals) const {
  for (int num_polls = 0; line.arrivals.load(std::memory_order_acquire) < arrivals; ++num_polls) {
    if (yields_ || num_polls > kSpins) {
      sched_yield();
    } else {
      pause();
    }
  }
}

double Lockstep::round_trip() {
  constexpr int kRuns = 5;
  constexpr int kBounces = 500;
  double best = 0;
  for (int run = 0; size_ > 1 && run < kRuns; ++run) {
    wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kBounces && rank_ < 2; ++i) {
      ++bounces_;
      if (rank_ == 1) wait_for(lines_[size_], bounces_);
      lines_[size_ + rank_].arrivals.store(bounces_, std::memory_order_release);
      if (rank_ == 0) wait_for(lines_[size_ + 1], bounces_);
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    best = run == 0 ? elapsed.count() : std::min(best, elapsed.count());
  }
  wait();
  return best / kBounces;
}

}  // namespace bench
