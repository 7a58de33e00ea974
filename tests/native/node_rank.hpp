// One rank of a node in a test: it knows what every operation must leave behind, and looks.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "complaints.hpp"
#include "node/node.hpp"
#include "reference.hpp"
#include "threads.hpp"

namespace dlscale::testing {

struct Shape {
  Type type;
  Op op;
  std::size_t count;   // elements
  std::size_t offset;  // elements between a cache line and the first one
  Values values;
};

class NodeRank {
 public:
  NodeRank(ThreadBootstrap& bootstrap, bool oversubscribed, const NodeOptions& options,
           const Kernels& kernels, Complaints& complaints)
      : bootstrap_(bootstrap),
        complaints_(complaints),
        node_(std::make_unique<Node>(bootstrap, names_of_ranks(bootstrap.size()), oversubscribed, options,
                                     kernels)) {}

  // When it returns nobody works with this rank's memory any more. After an exception the program is about to
  // end, and others may never come here.
  ~NodeRank() {
    if (std::uncaught_exceptions()) {
      (void)node_.release();
    } else {
      bootstrap_.wait_for_all();
    }
  }

  Node& node() { return *node_; }
  int rank() const { return bootstrap_.rank(); }
  int size() const { return bootstrap_.size(); }

  void allreduce(const Shape& shape, std::uint64_t seed) {
    std::byte* data = own_memory(shape, seed);
    node_->allreduce(data, shape.count, shape.type, shape.op, scale(shape.op));
    expect(data, reduced(shape, seed, {0, shape.count}), shape, "allreduce", seed);
    expect_untouched(data, shape, "allreduce");
  }

  // In a part of a shared array that all ranks agree on.
  void push(const SharedArray& array, const Shape& shape, std::uint64_t seed) {
    std::byte* data = array.own() + shape.offset * width(shape.type);
    fill(data, 0, shape.count, shape.type, shape.values, seed, rank());
    node_->allreduce(array, data, shape.count, shape.type, shape.op, scale(shape.op));
    expect(data, reduced(shape, seed, {0, shape.count}), shape, "push", seed);
  }

  // `blocks` cover 0 .. count. In place, or into memory for the own block alone.
  void reduce_scatter(const Shape& shape, std::uint64_t seed, const std::vector<Range>& blocks,
                      bool in_place) {
    const std::size_t element = width(shape.type);
    std::byte* data = own_memory(shape, seed);
    const Range own = blocks[static_cast<std::size_t>(rank())];
    std::vector<std::byte> elsewhere(own.size() * element);
    std::byte* output = in_place ? data : elsewhere.data();
    const std::size_t begin = in_place ? 0 : own.begin;
    node_->reduce_scatter(data, output, begin, shape.type, shape.op, scale(shape.op), blocks);
    expect(output + (own.begin - begin) * element, reduced(shape, seed, own), shape, "reduce_scatter", seed);
    if (!in_place) expect(data, brought(shape, seed, rank()), shape, "input of reduce_scatter", seed);
    expect_untouched(data, shape, "reduce_scatter");
  }

  // Rank q brings blocks[q].
  void allgather(const Shape& shape, std::uint64_t seed, const std::vector<Range>& blocks, bool in_place) {
    const std::size_t element = width(shape.type);
    std::byte* data = own_memory(shape, seed);
    const Range own = blocks[static_cast<std::size_t>(rank())];
    const std::vector<std::byte> piece(data + own.begin * element, data + own.end * element);
    const std::byte* input = in_place ? data : piece.data();
    node_->allgather(input, in_place ? 0 : own.begin, data, shape.type, blocks);
    std::vector<std::byte> expected(shape.count * element);
    for (int q = 0; q < size(); ++q) {
      const Range block = blocks[static_cast<std::size_t>(q)];
      fill(expected.data() + block.begin * element, block.begin, block.size(), shape.type, shape.values, seed,
           q);
    }
    expect(data, expected, shape, "allgather", seed);
    expect_untouched(data, shape, "allgather");
  }

  void broadcast(const Shape& shape, std::uint64_t seed, int root) {
    std::byte* data = own_memory(shape, seed);
    node_->broadcast(data, shape.count * width(shape.type), root);
    expect(data, brought(shape, seed, root), shape, "broadcast", seed);
    expect_untouched(data, shape, "broadcast");
  }

  // As a bootstrap, in one line or several.
  void bootstrap(std::size_t num_bytes, std::uint64_t seed) {
    const std::vector<std::byte> mine(num_bytes,
                                      static_cast<std::byte>(seed + static_cast<std::uint64_t>(rank())));
    std::vector<std::byte> all(num_bytes * static_cast<std::size_t>(size()));
    node_->allgather(mine.data(), all.data(), num_bytes);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto q = i / num_bytes;
      if (all[i] != static_cast<std::byte>(seed + q)) return complaints_.add("bootstrap: wrong bytes");
    }
  }

 private:
  static constexpr std::size_t kGuard = 128;
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kSkew = 16;
  static constexpr std::byte kUntouched{0x5a};

  double scale(Op op) const { return op == Op::average ? 1.0 / size() : 1.0; }

  // What this rank brings, with a guard on either side. The memory is that of the operation before where it
  // suffices, so that who still reads that finds it changed. It begins with a page; with an offset, ranks'
  // data lie a few bytes apart within their pages, between which kernels copy slowly.
  std::byte* own_memory(const Shape& shape, std::uint64_t seed) {
    const std::size_t element = width(shape.type);
    const std::size_t skew = shape.offset ? static_cast<std::size_t>(rank()) * kSkew : 0;
    const std::size_t begin = kGuard + shape.offset * element + skew;
    const std::size_t num_bytes = begin + shape.count * element + kGuard;
    if (num_bytes > capacity_) {
      void* memory = nullptr;
      if (posix_memalign(&memory, kPage, num_bytes) != 0) throw std::bad_alloc();
      memory_.reset(static_cast<std::byte*>(memory));
      capacity_ = num_bytes;
    }
    std::memset(memory_.get(), static_cast<int>(kUntouched), num_bytes);
    std::byte* data = memory_.get() + begin;
    fill(data, 0, shape.count, shape.type, shape.values, seed, rank());
    return data;
  }

  std::vector<std::byte> brought(const Shape& shape, std::uint64_t seed, int q) const {
    std::vector<std::byte> values(shape.count * width(shape.type));
    fill(values.data(), 0, shape.count, shape.type, shape.values, seed, q);
    return values;
  }

  std::vector<std::byte> reduced(const Shape& shape, std::uint64_t seed, Range range) const {
    const std::size_t element = width(shape.type);
    std::vector<std::vector<std::byte>> inputs;
    std::vector<const std::byte*> sources;
    for (int q = 0; q < size(); ++q) {
      inputs.emplace_back(range.size() * element);
      fill(inputs.back().data(), range.begin, range.size(), shape.type, shape.values, seed, q);
    }
    for (const auto& input : inputs) sources.push_back(input.data());
    std::vector<std::byte> result(range.size() * element);
    reduce_plainly(result.data(), sources, range.size(), shape.type, shape.op, scale(shape.op));
    return result;
  }

  void expect(const std::byte* found, const std::vector<std::byte>& expected, const Shape& shape,
              const char* what, std::uint64_t seed) {
    const std::string wrong =
        difference(found, expected.data(), expected.size() / width(shape.type), shape.type);
    if (!wrong.empty()) complaints_.add(where(shape, what) + ", seed " + std::to_string(seed) + ": " + wrong);
  }

  void expect_untouched(const std::byte* data, const Shape& shape, const char* what) {
    const std::byte* end = data + shape.count * width(shape.type);
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (*(data - 1 - i) != kUntouched || end[i] != kUntouched) {
        return complaints_.add(where(shape, what) + ": wrote beside the buffer");
      }
    }
  }

  std::string where(const Shape& shape, const char* what) const {
    return std::string(what) + " of " + std::to_string(shape.count) + " " + name_of(shape.type) + ", " +
           name_of(shape.op) + ", offset " + std::to_string(shape.offset) + ", rank " +
           std::to_string(rank()) + " of " + std::to_string(size());
  }

  ThreadBootstrap& bootstrap_;
  Complaints& complaints_;
  std::unique_ptr<Node> node_;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t capacity_ = 0;
};

// Blocks of `count` elements for `size` ranks: equal ones, or with weights that leave some ranks nothing.
inline std::vector<Range> blocks_of(std::size_t count, int size, std::uint64_t kind) {
  std::vector<Range> blocks;
  if (kind % 4 == 0) {
    for (int q = 0; q < size; ++q) {
      blocks.push_back(part({0, count}, static_cast<std::size_t>(q), static_cast<std::size_t>(size)));
    }
    return blocks;
  }
  std::vector<std::size_t> weights;
  std::size_t sum = 0;
  for (int q = 0; q < size; ++q) {
    weights.push_back((kind / 4 + static_cast<std::size_t>(q) * kind) % 3);  // 0, 1 or 2
    sum += weights.back();
  }
  if (sum == 0) weights[kind % static_cast<std::size_t>(size)] = sum = 1;
  std::size_t before = 0;
  for (int q = 0; q < size; ++q) {
    const std::size_t begin = count * before / sum;
    before += weights[static_cast<std::size_t>(q)];
    blocks.push_back({begin, count * before / sum});
  }
  return blocks;
}

}  // namespace dlscale::testing
