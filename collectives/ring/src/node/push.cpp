#include "push.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dlscale {
namespace {

constexpr std::size_t kPieceBytes =
    16 * 1024;  // stays in the first-level cache until it is written everywhere

}  // namespace

Push::Push(NodeMemory& memory, Waiting& waiting, const Kernels& kernels, int rank, int size)
    : memory_(memory),
      waiting_(waiting),
      kernels_(kernels),
      rank_(rank),
      size_(size),
      sources_(static_cast<std::size_t>(size)) {}

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

void Push::look_at(const std::vector<std::byte*>& buffers, std::size_t begin, std::size_t element) {
  for (std::size_t q = 0; q < buffers.size(); ++q) sources_[q] = buffers[q] + begin * element;
}

void Push::allreduce_slice(const std::vector<std::byte*>& buffers, Range own, Type type, Op op,
                           double scale) {
  const std::size_t element = width(type);
  const std::size_t next = static_cast<std::size_t>((rank_ + 1) % size_);
  const std::size_t piece = size_ > 2 ? kPieceBytes / element : std::max<std::size_t>(own.size(), 1);
  for (std::size_t begin = own.begin; begin < own.end; begin += piece) {
    const std::size_t count = std::min(piece, own.end - begin);
    std::byte* out = buffers[static_cast<std::size_t>(rank_)] + begin * element;
    std::byte* second = size_ > 1 ? buffers[next] + begin * element : nullptr;
    look_at(buffers, begin, element);
    reduce(kernels_, type, op, {out, second, sources_.data(), sources_.size(), count, scale, false});
    for (int i = 2; i < size_; ++i) {
      const std::size_t q = static_cast<std::size_t>((rank_ + i) % size_);
      kernels_.copy(buffers[q] + begin * element, out, count * element);
    }
  }
}

void Push::reduce_slice(const std::vector<std::byte*>& buffers, Range own, Type type, Op op, double scale) {
  if (!own.size()) return;
  const std::size_t element = width(type);
  look_at(buffers, own.begin, element);
  reduce(kernels_, type, op,
         {buffers[static_cast<std::size_t>(rank_)] + own.begin * element, nullptr, sources_.data(),
          sources_.size(), own.size(), scale, false});
}

void Push::push_slice(const std::vector<std::byte*>& buffers, Range own, Type type) {
  const std::size_t offset = own.begin * width(type), num_bytes = own.size() * width(type);
  for (int i = 1; i < size_; ++i) {
    const std::size_t q = static_cast<std::size_t>((rank_ + i) % size_);
    kernels_.copy(buffers[q] + offset, buffers[static_cast<std::size_t>(rank_)] + offset, num_bytes);
  }
}

}  // namespace dlscale
