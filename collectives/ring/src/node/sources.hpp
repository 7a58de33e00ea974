// What a reduction reads, on the stack for few ranks: every piece of shared work has its own.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace dlscale {

class Sources {
 public:
  explicit Sources(std::size_t num_ranks) : many_(num_ranks > kFew ? num_ranks : 0) {}

  const void*& operator[](std::size_t q) { return data()[q]; }
  const void** data() { return many_.empty() ? few_.data() : many_.data(); }

  // Every buffer from the same offset in bytes on.
  const void** at(const std::vector<std::byte*>& buffers, std::size_t offset) {
    for (std::size_t q = 0; q < buffers.size(); ++q) data()[q] = buffers[q] + offset;
    return data();
  }

 private:
  static constexpr std::size_t kFew = 16;
  std::array<const void*, kFew> few_;
  std::vector<const void*> many_;
};

}  // namespace dlscale
