#include "push.hpp"

#include <algorithm>
#include <stdexcept>

namespace dlscale {
namespace {

constexpr std::size_t kPieceBytes =
    16 * 1024;  // stays in the first-level cache until it is written everywhere

}  // namespace

Push::Push(Rendezvous& rendezvous, const Kernels& kernels, int rank, int size)
    : rendezvous_(rendezvous),
      kernels_(kernels),
      rank_(rank),
      size_(size),
      buffers_(static_cast<std::size_t>(size)),
      sources_(static_cast<std::size_t>(size)) {}

void Push::open(const SharedArray& array, std::byte* data, std::size_t count, Type type, Op op,
                double scale) {
  bool same = rendezvous_.open(~tag_of(Operation::allreduce, count, type, op), array.name_of(data)) == rank_;
  for (const std::uint64_t name : rendezvous_.words()) same = same && name == array.name_of(data);
  if (!same) {
    close();
    throw std::invalid_argument(
        "ranks gave different parts of a shared array; give the same part on all ranks");
  }
  for (int q = 0; q < size_; ++q) buffers_[static_cast<std::size_t>(q)] = array.of_rank(q, data);
  type_ = type;
  op_ = op;
  scale_ = scale;
}

void Push::reduce_piece(Range piece, std::byte* second) {
  if (!piece.size()) return;
  for (int q = 0; q < size_; ++q) sources_[static_cast<std::size_t>(q)] = at(q, piece.begin);
  reduce(kernels_, type_, op_,
         {at(rank_, piece.begin), second, sources_.data(), sources_.size(), piece.size(), scale_, false});
}

void Push::allreduce_slice(Range slice) {
  const std::size_t step = size_ > 2 ? kPieceBytes / width(type_) : std::max<std::size_t>(slice.size(), 1);
  for (std::size_t begin = slice.begin; begin < slice.end; begin += step) {
    const Range piece{begin, std::min(begin + step, slice.end)};
    reduce_piece(piece, size_ > 1 ? at((rank_ + 1) % size_, begin) : nullptr);
    for (int i = 2; i < size_; ++i) {
      kernels_.copy(at((rank_ + i) % size_, begin), at(rank_, begin), piece.size() * width(type_));
    }
  }
}

void Push::reduce_slice(Range slice) { reduce_piece(slice, nullptr); }

void Push::push_slice(Range slice) {
  for (int i = 1; i < size_; ++i) {
    kernels_.copy(at((rank_ + i) % size_, slice.begin), at(rank_, slice.begin), slice.size() * width(type_));
  }
}

}  // namespace dlscale
