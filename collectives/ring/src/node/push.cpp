#include "push.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "sources.hpp"

namespace dlscale {
namespace {

constexpr std::size_t kPieceBytes =
    16 * 1024;  // stays in the first-level cache until it is written everywhere

}  // namespace

Push::Push(NodeMemory& memory, Waiting& waiting, const Kernels& kernels, Crew& crew, int rank, int size)
    : memory_(memory), waiting_(waiting), kernels_(kernels), crew_(crew), rank_(rank), size_(size) {}

void Push::arrive(std::size_t name, std::size_t count) {
  const std::size_t turn = num_pushes_ % 2;
  auto& own = memory_.control_block(rank_).push;
  own.name[turn] = name;
  own.count[turn] = count;
  waiting_.announce(&memory_.control_block(rank_).arrived, num_pushes_ + 1);
  bool same = true;
  for (int i = 1; i < size_; ++i) {
    const int q = (rank_ + i) % size_;
    waiting_.until(&memory_.control_block(q).arrived, num_pushes_ + 1, q);
    const auto& other = memory_.control_block(q).push;
    same = same && other.name[turn] == name && other.count[turn] == count;
  }
  if (!same) {
    leave();
    throw std::invalid_argument(
        "ranks gave different parts of a shared array; give the same part on all ranks");
  }
}

void Push::leave() {
  ++num_pushes_;
  waiting_.announce(&memory_.control_block(rank_).pushed, num_pushes_);
  for (int i = 1; i < size_; ++i) {
    const int q = (rank_ + i) % size_;
    waiting_.until(&memory_.control_block(q).pushed, num_pushes_, q);
  }
}

void Push::allreduce_slice(const std::vector<std::byte*>& buffers, Range own, Type type, Op op,
                           double scale) {
  const std::size_t element = width(type);
  const std::size_t next = static_cast<std::size_t>((rank_ + 1) % size_);
  crew_.share(own, element, [&](Range range) {
    const std::size_t piece = size_ > 2 ? kPieceBytes / element : std::max<std::size_t>(range.size(), 1);
    Sources sources(buffers.size());
    for (std::size_t begin = range.begin; begin < range.end; begin += piece) {
      const std::size_t count = std::min(piece, range.end - begin);
      std::byte* out = buffers[static_cast<std::size_t>(rank_)] + begin * element;
      std::byte* second = size_ > 1 ? buffers[next] + begin * element : nullptr;
      reduce(kernels_, type, op,
             {out, second, sources.at(buffers, begin * element), buffers.size(), count, scale, false});
      for (int i = 2; i < size_; ++i) {
        const std::size_t q = static_cast<std::size_t>((rank_ + i) % size_);
        kernels_.copy(buffers[q] + begin * element, out, count * element, {});
      }
    }
  });
}

void Push::reduce_slice(const std::vector<std::byte*>& buffers, Range own, Type type, Op op, double scale) {
  const std::size_t element = width(type);
  crew_.share(own, element, [&](Range range) {
    Sources sources(buffers.size());
    const std::size_t offset = range.begin * element;
    reduce(kernels_, type, op,
           {buffers[static_cast<std::size_t>(rank_)] + offset, nullptr, sources.at(buffers, offset),
            buffers.size(), range.size(), scale, false});
  });
}

void Push::push_slice(const std::vector<std::byte*>& buffers, Range own, Type type) {
  const std::size_t element = width(type);
  crew_.share(own, element, [&](Range range) {
    const std::byte* from = buffers[static_cast<std::size_t>(rank_)] + range.begin * element;
    for (int i = 1; i < size_; ++i) {
      const std::size_t q = static_cast<std::size_t>((rank_ + i) % size_);
      kernels_.copy(buffers[q] + range.begin * element, from, range.size() * element, {});
    }
  });
}

}  // namespace dlscale
