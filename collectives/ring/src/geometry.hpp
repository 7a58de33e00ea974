// Ranges of elements, and how they are cut.
#pragma once

#include <algorithm>
#include <cstddef>

namespace dlscale {

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
};

// Part `index` of `whole` cut into `num_parts`: sizes differ by at most one, the larger ones come first, and
// parts may be empty. (Written so that no product can overflow.)
inline Range part(Range whole, std::size_t index, std::size_t num_parts) {
  const std::size_t length = whole.size() / num_parts;
  const std::size_t num_longer = whole.size() % num_parts;
  const std::size_t begin = whole.begin + index * length + std::min(index, num_longer);
  return {begin, begin + length + (index < num_longer ? 1 : 0)};
}

}  // namespace dlscale
