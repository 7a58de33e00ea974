// Which elements a rank of the node owns, chunk by chunk: arithmetic only.
//
//   owner  who finishes an element: ranks 0 .. num_owners - 1, or a single one for a broadcast;
//   slice  the elements of one owner in one chunk;
//   chunk  a slice of each owner; while one is reduced, the next is published and the last collected.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "../geometry.hpp"

namespace dlscale {

class Slices {
 public:
  // Contiguous chunks of at most `num_owners * slice` elements, each cut into equal slices: for allreduce.
  // Slices begin at multiples of `line` elements from the beginning.
  static Slices interleaved(std::size_t count, std::size_t num_owners, std::size_t slice, std::size_t line) {
    Slices s;
    s.count_ = count;
    s.num_owners_ = num_owners;
    s.slice_ = slice;
    s.line_ = line;
    const std::size_t chunk = num_owners * slice;
    s.num_chunks_ = (count + chunk - 1) / chunk;
    return s;
  }

  // Every owner's elements lie together: for reduce-scatter, allgather and broadcast.
  static Slices blocks(std::vector<Range> blocks, std::size_t slice) {
    Slices s;
    s.num_owners_ = blocks.size();
    s.slice_ = slice;
    for (const Range& block : blocks) {
      s.num_chunks_ = std::max(s.num_chunks_, (block.size() + slice - 1) / slice);
      s.count_ += block.size();
    }
    s.blocks_ = std::move(blocks);
    return s;
  }

  std::size_t num_chunks() const { return num_chunks_; }
  std::size_t num_owners() const { return num_owners_; }
  std::size_t slice() const { return slice_; }
  std::size_t count() const { return count_; }  // of all elements

  // Elements of the longest slice of a chunk.
  std::size_t longest(std::size_t chunk) const {
    std::size_t most = 0;
    for (std::size_t owner = 0; owner < num_owners_; ++owner) most = std::max(most, at(chunk, owner).size());
    return most;
  }

  Range at(std::size_t chunk, std::size_t owner) const {
    if (owner >= num_owners_) return {};
    if (!blocks_.empty()) {
      const Range block = blocks_[owner];
      const std::size_t begin = std::min(block.begin + chunk * slice_, block.end);
      return {begin, std::min(begin + slice_, block.end)};
    }
    const std::size_t begin = chunk * num_owners_ * slice_;
    const std::size_t length = std::min(num_owners_ * slice_, count_ - begin);
    // The last chunk is shorter: equal slices again, rounded up to whole lines.
    const std::size_t lines = (length + num_owners_ * line_ - 1) / (num_owners_ * line_);
    const std::size_t share = std::min(lines * line_, slice_);
    return {begin + std::min(length, owner * share), begin + std::min(length, (owner + 1) * share)};
  }

 private:
  std::size_t count_ = 0;
  std::size_t num_owners_ = 1;
  std::size_t slice_ = 1;
  std::size_t line_ = 1;
  std::size_t num_chunks_ = 0;
  std::vector<Range> blocks_;
};

}  // namespace dlscale
