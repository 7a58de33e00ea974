// What rounding to bfloat16 has taken away from one bucket of gradients so far.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace dlscale {

// Per element, for each of the two places where this rank rounds: what it hands over to be added, and the
// sums that it owns. Zeros at first. Memory is taken only for elements that the rank does round there.
class Residual {
 public:
  explicit Residual(std::size_t count) : count_(count) {
    if (!count) return;
    void* memory = mmap(nullptr, num_bytes(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<float*>(memory);
  }
  ~Residual() {
    if (data_) munmap(data_, num_bytes());
  }
  Residual(Residual&& other) noexcept
      : count_(std::exchange(other.count_, 0)), data_(std::exchange(other.data_, nullptr)) {}
  Residual& operator=(Residual&& other) noexcept {
    std::swap(count_, other.count_);
    std::swap(data_, other.data_);
    return *this;
  }

  static constexpr std::size_t kNumPlaces = 2;

  std::size_t count() const { return count_; }
  float* place(std::size_t i) const { return data_ + i * count_; }
  float* contributions() const { return place(0); }
  float* results() const { return place(1); }

 private:
  std::size_t num_bytes() const { return kNumPlaces * count_ * sizeof(float); }

  std::size_t count_;
  float* data_ = nullptr;
};

}  // namespace dlscale
