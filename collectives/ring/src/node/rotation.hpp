// Places in an area of shared memory: arithmetic only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "../geometry.hpp"

namespace dlscale {

constexpr std::size_t kLine = 64;

// Messages of these sizes rotate: smaller ones are faster in two places, larger ones leave the caches anyway.
constexpr std::size_t kLeastRotating = 8 * 1024, kMostRotating = 256 * 1024;

// Hands out places one after the other: as few as are in use at once, or, where a message rotates, so many
// that the caches of the second level have no room for what was used since. Where cores share a third-level
// cache, a line that another core still has in its own takes three times as long to overwrite as one that has
// moved on.
//
// No place overlaps those before it whose users may be still at work. Ranks that ask alike get the same.
class Rotation {
 public:
  // For places of up to `largest` bytes (whole lines), of which `in_use` (2 or 3) are in use at once;
  // messages that rotate use `rotated` bytes of all `num_ranks` together.
  Rotation(std::size_t largest, std::size_t in_use, std::size_t rotated, int num_ranks)
      : num_before_(in_use - 1),
        share_(rotated / static_cast<std::size_t>(num_ranks) / kLine * kLine),
        // Those in use leave `in_use` gaps, of which one has room for the largest.
        num_bytes_(std::max(share_, (num_before_ + in_use) * largest)) {}

  std::size_t num_bytes() const { return num_bytes_; }
  std::size_t share() const { return share_; }

  std::size_t next(std::size_t wanted, bool rotates) {
    if (wanted == 0)
      return 0;  // an operation without elements keeps nobody together: those before are in use
    const std::size_t next = end_of(before_[0]), usual = rotates ? share_ : (num_before_ + 1) * wanted;
    const std::size_t first = next + wanted > usual ? 0 : next;
    for (const std::size_t begin : {first, next, std::size_t{0}, end_of(before_[1])}) {
      const Range place{begin, begin + wanted};
      if (place.end > num_bytes_ || !is_free(place)) continue;
      before_ = {place, before_[0]};
      return begin;
    }
    throw std::logic_error("no place for " + std::to_string(wanted) + " bytes");
  }

 private:
  static std::size_t end_of(Range place) { return (place.end + kLine - 1) / kLine * kLine; }

  bool is_free(Range place) const {
    return std::none_of(before_.begin(), before_.begin() + static_cast<std::ptrdiff_t>(num_before_),
                        [&](Range other) { return place.begin < other.end && other.begin < place.end; });
  }

  std::size_t num_before_;
  std::size_t share_;
  std::size_t num_bytes_;
  std::array<Range, 2> before_{};
};

}  // namespace dlscale
