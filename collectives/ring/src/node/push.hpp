// Buffers that lie in shared memory: every rank reads all of them and writes its results into all of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../geometry.hpp"
#include "../reduction/kernels.hpp"
#include "memory.hpp"
#include "rendezvous.hpp"

namespace dlscale {

// Every rank's buffer of one size, mapped by all ranks of the node.
class SharedArray {
 public:
  // Collective. `number`: which array of its engine it is, the same on all ranks.
  SharedArray(Bootstrap& bootstrap, std::size_t num_bytes, bool huge_pages, std::size_t number)
      : memory_(bootstrap, num_bytes, huge_pages), rank_(bootstrap.rank()), number_(number) {}

  std::byte* own() const { return memory_.part(rank_); }
  const std::string& obstacle_to_huge_pages() const { return memory_.obstacle_to_huge_pages(); }
  bool holds(const std::byte* data, std::size_t num_bytes) const {
    return data >= own() && data + num_bytes <= own() + memory_.num_bytes();
  }
  // What this rank keeps at `data`, by a name that means the same on all ranks.
  std::size_t name_of(const std::byte* data) const {
    return (number_ << 44) + static_cast<std::size_t>(data - own());
  }
  // Where rank q keeps what this rank keeps at `data`.
  std::byte* of_rank(int q, const std::byte* data) const { return memory_.part(q) + (data - own()); }

 private:
  SharedMemory memory_;
  int rank_;
  std::size_t number_;
};

// Moves 2 P S bytes, the least that is possible: each element is read once from every rank's buffer and
// written once to every rank's. Nothing is staged. A rank reads and writes its own slice alone, so no two
// touch the same element.
class Push {
 public:
  Push(Rendezvous& rendezvous, const Kernels& kernels, int rank, int size);

  // All ranks name the same part of the same array; throws std::invalid_argument on all ranks otherwise.
  void open(const SharedArray& array, std::byte* data, std::size_t count, Type type, Op op, double scale);

  // Between `open` and `close`: the slice's sums in all buffers,
  void allreduce_slice(Range slice);
  // or in the own buffer only, and later in the others'.
  void reduce_slice(Range slice);
  void push_slice(Range slice);

  // Returns when every rank's slices are in the own buffer.
  void close() { rendezvous_.close(); }

 private:
  std::byte* at(int q, std::size_t element) const {
    return buffers_[static_cast<std::size_t>(q)] + element * width(type_);
  }
  void reduce_piece(Range piece, std::byte* second);

  Rendezvous& rendezvous_;
  const Kernels& kernels_;
  int rank_;
  int size_;
  std::vector<std::byte*> buffers_;
  std::vector<const void*> sources_;
  Type type_{};
  Op op_{};
  double scale_ = 1;
};

}  // namespace dlscale
