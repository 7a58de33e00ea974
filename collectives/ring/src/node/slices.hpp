// What an operation moves, and which elements a rank of the node owns, chunk by chunk: arithmetic only.
//
//   owner  who finishes an element: ranks 0 .. num_owners - 1;
//   slice  the elements of one owner in one chunk;
//   chunk  a slice of each owner; while one is reduced, the next is published and the last collected.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "../geometry.hpp"
#include "../reduction/types.hpp"
#include "flags.hpp"

namespace dlscale {

// One operation on one rank. Input and output may be the same memory.
struct Job {
  const std::byte* input;
  std::byte* output;
  Type type;
  Op op;
  double scale;
  std::size_t input_begin = 0;  // the element that the input begins with, and the output
  std::size_t output_begin = 0;
  bool streaming = false;  // what is staged bypasses the caches
  bool rotates = false;    // what is staged lies in the ring: see Slots

  const std::byte* in(Range range) const { return input + (range.begin - input_begin) * width(type); }
  std::byte* out(Range range) const { return output + (range.begin - output_begin) * width(type); }
  std::size_t bytes(Range range) const { return range.size() * width(type); }
};

inline std::size_t count_of(const std::vector<Range>& blocks) {
  std::size_t count = 0;
  for (const Range& block : blocks) count += block.size();
  return count;
}

// Rank `index` of `size`'s part of `count` elements, in whole cache lines.
inline Range part_in_lines(std::size_t count, int index, int size, Type type) {
  const std::size_t line = kLine / width(type);
  const Range own =
      part({0, (count + line - 1) / line}, static_cast<std::size_t>(index), static_cast<std::size_t>(size));
  return {std::min(count, own.begin * line), std::min(count, own.end * line)};
}

class Slices {
 public:
  // Contiguous chunks of at most `num_owners * slice` elements, each cut into equal slices, which begin at
  // multiples of a line: for allreduce.
  static Slices interleaved(std::size_t count, std::size_t num_owners, std::size_t slice, Type type) {
    Slices s;
    s.count_ = count;
    s.num_owners_ = num_owners;
    s.slice_ = slice;
    s.line_ = kLine / width(type);
    s.num_chunks_ = (count + num_owners * slice - 1) / (num_owners * slice);
    return s;
  }

  // Every owner's elements lie together: for reduce-scatter, allgather and broadcast.
  static Slices blocks(std::vector<Range> blocks, std::size_t slice) {
    Slices s;
    s.num_owners_ = blocks.size();
    s.slice_ = slice;
    s.count_ = count_of(blocks);
    for (const Range& block : blocks)
      s.num_chunks_ = std::max(s.num_chunks_, (block.size() + slice - 1) / slice);
    s.blocks_ = std::move(blocks);
    return s;
  }

  std::size_t num_chunks() const { return num_chunks_; }
  std::size_t num_owners() const { return num_owners_; }
  std::size_t count() const { return count_; }  // of all elements

  // Room for the longest slice, which is in the first chunk, in whole lines.
  std::size_t slice_bytes(Type type) const {
    std::size_t most = 0;
    for (std::size_t owner = 0; num_chunks_ && owner < num_owners_; ++owner)
      most = std::max(most, at(0, owner).size());
    return (most * width(type) + kLine - 1) / kLine * kLine;
  }

  Range at(std::size_t chunk, std::size_t owner) const {
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
