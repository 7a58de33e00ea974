#include "small.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "slices.hpp"

namespace dlscale {
namespace {

// A few pieces per message, so that one is added while the next crosses.
constexpr std::size_t kLeastPiece = 4 * 1024;
constexpr std::size_t kMostPiece = 16 * 1024;

// Elements of a piece of so many.
std::size_t piece_of(std::size_t count, std::size_t element) {
  return std::clamp(count * element / 4 / kLine * kLine, kLeastPiece, kMostPiece) / element;
}

// Every block in as many pieces as the longest one needs.
Slices pieces_of(const std::vector<Range>& blocks, std::size_t element) {
  std::size_t longest = 0;
  for (const Range& block : blocks) longest = std::max(longest, block.size());
  return Slices::blocks(blocks, piece_of(longest, element));
}

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

std::size_t Small::place_for(const Job& job, std::size_t count) {
  return memory_.offered_places().next(count * width(job.type), job.rotates);
}

// Publishes piece k, and then takes what all have published of k - 1.
template <typename Publish, typename Take>
void Small::in_pieces(std::size_t num_pieces, std::size_t place, std::uint32_t tag, const Publish& publish,
                      const Take& take) {
  if (num_pieces == 0) return;  // keeps nobody together, and has no turn
  const std::uint64_t turn = num_one_shots_++;
  Counter& mine = memory_.control_block(rank_).one_shot;
  mine.tags[turn % 4].store(tag, std::memory_order_relaxed);
  for (std::size_t k = 0; k < num_pieces + 1; ++k) {
    if (k < num_pieces) {
      publish(memory_.offered(rank_) + place, k);
      waiting_.announce(&mine, num_pieces_ + k + 1);
    }
    if (k == 0) continue;
    for (int i = 1; i < size_; ++i) {
      const int q = (rank_ + i) % size_;
      Counter& counter = memory_.control_block(q).one_shot;
      waiting_.until(&counter, num_pieces_ + k, q);
      if (k == 1) waiting_.compare(tag, counter.tags[turn % 4].load(std::memory_order_relaxed), q);
      slots_[static_cast<std::size_t>(q)] = memory_.offered(q) + place;
    }
    take(k - 1);
  }
  num_pieces_ += num_pieces;
}

// A rank that has nothing to give may have no memory either.
void Small::put(const Job& job, std::byte* to, Range range) {
  if (!range.size()) return;
  kernels_.copy(to, job.in(range), range.size() * width(job.type));
}

void Small::allreduce_one_shot(const Job& job, std::size_t count) {
  const std::size_t element = width(job.type), piece = piece_of(count, element);
  const auto range = [&](std::size_t k) { return Range{k * piece, std::min(count, (k + 1) * piece)}; };
  in_pieces((count + piece - 1) / piece, place_for(job, count), tag_of(count, job.type, job.op, 0),
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
  const std::size_t element = width(job.type);
  const Slices pieces = pieces_of(blocks, element);
  const auto own = static_cast<std::size_t>(rank_);
  std::size_t before_own = 0;  // elements of the blocks before it
  for (std::size_t o = 0; o < own; ++o) before_own += blocks[o].size();
  in_pieces(
      pieces.num_chunks(), place_for(job, pieces.count()), tag_of(pieces.count(), job.type, job.op, 1),
      [&](std::byte* slot, std::size_t k) {
        std::size_t before = 0;
        for (std::size_t o = 0; o < blocks.size(); before += blocks[o++].size()) {
          const Range r = pieces.at(k, o);
          if (o != own) put(job, slot + (before + r.begin - blocks[o].begin) * element, r);
        }
      },
      [&](std::size_t k) {
        const Range r = pieces.at(k, own);
        if (!r.size()) return;
        const std::size_t place = (before_own + r.begin - blocks[own].begin) * element;
        for (std::size_t q = 0; q < slots_.size(); ++q) {
          sources_[q] = q == own ? job.in(r) : slots_[q] + place;
        }
        reduce(kernels_, job.type, job.op,
               {job.out(r), nullptr, sources_.data(), sources_.size(), r.size(), job.scale, false});
      });
}

// A slot has the own block.
void Small::allgather_one_shot(const Job& job, const std::vector<Range>& blocks) {
  const std::size_t element = width(job.type);
  const Slices pieces = pieces_of(blocks, element);
  const auto own = static_cast<std::size_t>(rank_);
  const auto place = [&](std::size_t o, Range r) { return (r.begin - blocks[o].begin) * element; };
  std::size_t longest = 0;
  for (const Range& block : blocks) longest = std::max(longest, block.size());
  in_pieces(
      pieces.num_chunks(), place_for(job, longest), tag_of(pieces.count(), job.type, job.op, 1),
      [&](std::byte* slot, std::size_t k) {
        const Range r = pieces.at(k, own);
        put(job, slot + place(own, r), r);
      },
      [&](std::size_t k) {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          const std::size_t o = (own + i) % blocks.size();
          const Range r = pieces.at(k, o);
          if (!r.size()) continue;
          const std::byte* from = o == own ? job.in(r) : slots_[o] + place(o, r);
          if (from != job.out(r)) kernels_.copy(job.out(r), from, r.size() * element);
        }
      });
}

}  // namespace dlscale
