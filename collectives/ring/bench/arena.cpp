#include "arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <stdexcept>

namespace bench {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t stride(std::size_t message_bytes) { return (message_bytes + kPage - 1) / kPage * kPage; }

}  // namespace

Arena::Arena(std::size_t num_bytes) : num_bytes_(num_bytes), owned_(true) {
  void* place = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) throw std::runtime_error("no memory for " + std::to_string(num_bytes) + " bytes");
  memory_ = static_cast<float*>(place);
  fill();
}

Arena::Arena(float* memory, std::size_t num_bytes) : memory_(memory), num_bytes_(num_bytes), owned_(false) {
  fill();
}

Arena::~Arena() {
  if (owned_) munmap(memory_, num_bytes_);
}

// Positive, so that sums over sums only ever grow to infinity: adding infinities costs what adding numbers
// costs, while zeros might be stored more cheaply and denormal numbers are added slowly.
void Arena::fill() { std::fill_n(memory_, num_bytes_ / sizeof(float), 1.0F); }

float* Arena::next(const std::string& mode, std::size_t message_bytes) {
  if (mode != "cold") return memory_;
  if (cursor_ + stride(message_bytes) > num_bytes_) cursor_ = 0;
  float* message = memory_ + cursor_ / sizeof(float);
  cursor_ += stride(message_bytes);
  return message;
}

std::size_t Arena::needed(std::size_t largest, std::size_t cold_bytes, bool cold) {
  return stride(largest) + (cold ? std::max(stride(cold_bytes), stride(largest)) : 0);
}

}  // namespace bench
