#include "small.hpp"

#include <algorithm>
#include <cstring>

namespace dlscale {
namespace {

// A few pieces per message, so that one is added while the next crosses.
constexpr std::size_t kLeastPiece = 4 * 1024;
constexpr std::size_t kMostPiece = 16 * 1024;

// Elements of a piece of so many.
std::size_t piece_of(std::size_t count, std::size_t element) {
  return std::clamp(count * element / 4 / kLine * kLine, kLeastPiece, kMostPiece) / element;
}

// The blocks of all ranks, each cut into as many pieces as the longest one needs.
class Pieces {
 public:
  Pieces(const std::vector<Range>& blocks, std::size_t element) : blocks_(blocks), element_(element) {
    std::size_t longest = 0;
    for (const Range& block : blocks) {
      longest = std::max(longest, block.size());
      begins_.push_back(count_);
      count_ += block.size();
    }
    piece_ = piece_of(longest, element);
    num_pieces_ = (longest + piece_ - 1) / piece_;
  }

  std::size_t num_pieces() const { return num_pieces_; }
  std::size_t count() const { return count_; }  // of all elements
  std::size_t bytes(Range range) const { return range.size() * element_; }
  Range at(std::size_t owner, std::size_t k) const {
    const Range block = blocks_[owner];
    const std::size_t begin = std::min(block.begin + k * piece_, block.end);
    return {begin, std::min(begin + piece_, block.end)};
  }
  // Where elements of that owner's block lie if the blocks lie one after the other, in bytes.
  std::size_t place(std::size_t owner, Range range) const {
    return (begins_[owner] + range.begin - blocks_[owner].begin) * element_;
  }

 private:
  const std::vector<Range>& blocks_;
  std::size_t element_;
  std::size_t piece_;
  std::size_t num_pieces_;
  std::size_t count_ = 0;
  std::vector<std::size_t> begins_;
};

}  // namespace

Small::Small(NodeMemory& memory, Waiting& waiting, const Kernels& kernels, int rank, int size)
    : memory_(memory),
      waiting_(waiting),
      kernels_(kernels),
      rank_(rank),
      size_(size),
      sources_(static_cast<std::size_t>(size)),
      slots_(static_cast<std::size_t>(size)) {}

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

// Publishes piece k, and then takes what all have published of k - 1.
template <typename Publish, typename Take>
void Small::in_pieces(std::size_t num_pieces, std::uint32_t tag, const Publish& publish, const Take& take) {
  if (num_pieces == 0) return;  // keeps nobody together, and has no turn
  const std::uint64_t turn = num_one_shots_++;
  Counter& mine = memory_.control_block(rank_).one_shot;
  mine.tags[turn % 4].store(tag, std::memory_order_relaxed);
  for (std::size_t k = 0; k < num_pieces + 1; ++k) {
    if (k < num_pieces) {
      publish(memory_.one_shot(rank_, turn), k);
      waiting_.announce(&mine, num_pieces_ + k + 1);
    }
    if (k == 0) continue;
    for (int i = 1; i < size_; ++i) {
      const int q = (rank_ + i) % size_;
      Counter& counter = memory_.control_block(q).one_shot;
      waiting_.until(&counter, num_pieces_ + k, q);
      if (k == 1) waiting_.compare(tag, counter.tags[turn % 4].load(std::memory_order_relaxed), q);
      slots_[static_cast<std::size_t>(q)] = memory_.one_shot(q, turn);
    }
    take(k - 1);
  }
  num_pieces_ += num_pieces;
}

// A rank that has nothing to give may have no memory either.
void Small::put(const Job& job, std::byte* to, Range range) {
  if (!range.size()) return;
  kernels_.copy(to, job.in(range), range.size() * width(job.type), {});
}

void Small::allreduce_one_shot(const Job& job, std::size_t count) {
  const std::size_t element = width(job.type), piece = piece_of(count, element);
  const auto range = [&](std::size_t k) { return Range{k * piece, std::min(count, (k + 1) * piece)}; };
  in_pieces((count + piece - 1) / piece, tag_of(count, job.type, job.op, 0),
            [&](std::byte* slot, std::size_t k) { put(job, slot + range(k).begin * element, range(k)); },
            [&](std::size_t k) {
              const Range r = range(k);
              for (std::size_t q = 0; q < slots_.size(); ++q) {
                sources_[q] =
                    q == static_cast<std::size_t>(rank_) ? job.in(r) : slots_[q] + r.begin * element;
              }
              reduce(kernels_, job.type, job.op,
                     {job.out(r), nullptr, sources_.data(), sources_.size(), r.size(), job.scale, false});
            });
}

// A slot has the blocks one after the other; that of the own rank stays empty.
void Small::reduce_scatter_one_shot(const Job& job, const std::vector<Range>& blocks) {
  const Pieces pieces(blocks, width(job.type));
  const auto own = static_cast<std::size_t>(rank_);
  in_pieces(
      pieces.num_pieces(), tag_of(pieces.count(), job.type, job.op, 1),
      [&](std::byte* slot, std::size_t k) {
        for (std::size_t o = 0; o < blocks.size(); ++o) {
          const Range r = pieces.at(o, k);
          if (o != own) put(job, slot + pieces.place(o, r), r);
        }
      },
      [&](std::size_t k) {
        const Range r = pieces.at(own, k);
        if (!r.size()) return;
        for (std::size_t q = 0; q < slots_.size(); ++q) {
          sources_[q] = q == own ? job.in(r) : slots_[q] + pieces.place(own, r);
        }
        reduce(kernels_, job.type, job.op,
               {job.out(r), nullptr, sources_.data(), sources_.size(), r.size(), job.scale, false});
      });
}

// A slot has the own block.
void Small::allgather_one_shot(const Job& job, const std::vector<Range>& blocks) {
  const Pieces pieces(blocks, width(job.type));
  const auto own = static_cast<std::size_t>(rank_);
  const auto place = [&](std::size_t o, Range r) { return (r.begin - blocks[o].begin) * width(job.type); };
  in_pieces(
      pieces.num_pieces(), tag_of(pieces.count(), job.type, job.op, 1),
      [&](std::byte* slot, std::size_t k) {
        const Range r = pieces.at(own, k);
        put(job, slot + place(own, r), r);
      },
      [&](std::size_t k) {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          const std::size_t o = (own + i) % blocks.size();
          const Range r = pieces.at(o, k);
          if (!r.size()) continue;
          const std::byte* from = o == own ? job.in(r) : slots_[o] + place(o, r);
          if (from != job.out(r)) kernels_.copy(job.out(r), from, pieces.bytes(r), {});
        }
      });
}

}  // namespace dlscale
