#include "small.hpp"

#include <algorithm>
#include <cstring>

namespace dlscale {
namespace {

// A few pieces per message, so that one is added while the next crosses.
constexpr std::size_t kLeastPiece = 4 * 1024;
constexpr std::size_t kMostPiece = 16 * 1024;

}  // namespace

Small::Small(NodeMemory& memory, Waiting& waiting, const Kernels& kernels, int rank, int size)
    : memory_(memory),
      waiting_(waiting),
      kernels_(kernels),
      rank_(rank),
      size_(size),
      sources_(static_cast<std::size_t>(size)) {}

void Small::write_line(const std::byte* data, std::size_t num_bytes, std::uint32_t tag) {
  InlineLine& line = memory_.control_block(rank_).lines[num_lines_ % 2];
  if (num_bytes) std::memcpy(line.payload, data, num_bytes);
  line.tag.store(tag, std::memory_order_relaxed);
  waiting_.announce(&line.number, &line.num_sleepers, num_lines_ + 1);
}

const InlineLine& Small::read_line(int q, std::uint32_t tag) {
  InlineLine& line = memory_.control_block(q).lines[num_lines_ % 2];
  waiting_.until(line.number, &line.num_sleepers, num_lines_ + 1, q);
  waiting_.compare(tag, line.tag.load(std::memory_order_relaxed), q);
  return line;
}

void Small::allreduce_inline(std::byte* data, std::size_t count, Type type, Op op, double scale) {
  const std::uint32_t tag = tag_of(count, type, op, 0);
  write_line(data, count * width(type), tag);
  for (int q = 0; q < size_; ++q) {
    sources_[static_cast<std::size_t>(q)] = q == rank_ ? data : read_line(q, tag).payload;
  }
  reduce(kernels_, type, op, {data, nullptr, sources_.data(), sources_.size(), count, scale, false});
  ++num_lines_;
}

void Small::allgather_inline(const std::byte* mine, std::byte* all, std::size_t num_bytes) {
  const std::uint32_t tag = tag_of(num_bytes, Type::int64, Op::sum, 1);
  write_line(mine, num_bytes, tag);
  for (int q = 0; q < size_; ++q) {
    const std::byte* from = q == rank_ ? mine : read_line(q, tag).payload;
    if (num_bytes) std::memcpy(all + static_cast<std::size_t>(q) * num_bytes, from, num_bytes);
  }
  ++num_lines_;
}

void Small::allreduce_one_shot(std::byte* data, std::size_t count, Type type, Op op, double scale) {
  const std::size_t element = width(type);
  const std::size_t piece_bytes = count * element / 4 / kLine * kLine;
  const std::size_t piece = std::clamp(piece_bytes, kLeastPiece, kMostPiece) / element;
  const std::size_t num_pieces = (count + piece - 1) / piece;
  const auto range = [&](std::size_t k) { return Range{k * piece, std::min(count, (k + 1) * piece)}; };
  const std::uint64_t turn = num_one_shots_++;
  std::byte* own = memory_.one_shot(rank_, turn);
  const std::uint32_t tag = tag_of(count, type, op, 0);
  memory_.control_block(rank_).one_shot.tags[turn % 4].store(tag, std::memory_order_relaxed);
  for (std::size_t k = 0; k < num_pieces + 1; ++k) {
    if (k < num_pieces) {
      const Range r = range(k);
      kernels_.copy(own + r.begin * element, data + r.begin * element, r.size() * element, {});
      waiting_.announce(&memory_.control_block(rank_).one_shot, num_pieces_ + k + 1);
    }
    if (k == 0) continue;
    const Range r = range(k - 1);
    for (int q = 0; q < size_; ++q) {
      const std::byte* from = q == rank_ ? data : memory_.one_shot(q, turn);
      if (q != rank_) {
        Counter& counter = memory_.control_block(q).one_shot;
        waiting_.until(&counter, num_pieces_ + k, q);
        if (k == 1) waiting_.compare(tag, counter.tags[turn % 4].load(std::memory_order_relaxed), q);
      }
      sources_[static_cast<std::size_t>(q)] = from + r.begin * element;
    }
    reduce(kernels_, type, op,
           {data + r.begin * element, nullptr, sources_.data(), sources_.size(), r.size(), scale, false});
  }
  num_pieces_ += num_pieces;
}

}  // namespace dlscale
