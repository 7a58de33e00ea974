#include "node.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace dlscale {
namespace {

std::vector<Variant> usable(const NodeOptions& options, bool single_copies) {
  std::vector<Variant> variants = options.variants;
  if (!single_copies) {
    variants.erase(std::remove(variants.begin(), variants.end(), Variant::single_copy), variants.end());
  }
  return variants;
}

// One-shot reads all ranks' elements on every rank, so it pays less the more ranks there are.
std::size_t one_shot_bytes_of(const NodeOptions& options, int size) {
  const std::size_t automatic =
      std::clamp<std::size_t>(128 * 1024 / static_cast<std::size_t>(size), 4 * 1024, 64 * 1024);
  const std::size_t bytes = options.one_shot_bytes ? options.one_shot_bytes : automatic;
  return (bytes + kLine - 1) / kLine * kLine;
}

// Without other orders, other variants are tried for what is larger than this.
constexpr std::size_t kSurelyOneShot = 4 * 1024;

// The root stages a piece while the others take the one before.
std::size_t piece_of_broadcast(std::size_t num_bytes) {
  constexpr std::size_t kLeast = 16 * 1024, kNumPieces = 8;
  return std::max(kLeast, num_bytes / kNumPieces / kLine * kLine);
}

}  // namespace

Node::Node(Bootstrap& bootstrap, std::vector<int> global_ranks, bool oversubscribed,
           const NodeOptions& options, const Kernels& kernels)
    : rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      kernels_(kernels),
      memory_(bootstrap, one_shot_bytes_of(options, bootstrap.size()),
              std::max((options.chunk_bytes + kLine - 1) / kLine, static_cast<std::size_t>(size_)) * kLine,
              options.huge_pages),
      watch_(bootstrap),
      obstacle_(options.single_copy ? dlscale::obstacle_to_single_copies(bootstrap, watch_) : "not wanted"),
      waiting_(watch_, &memory_.control_block(0).failure, memory_.waits_for(size_), rank_,
               std::move(global_ranks), oversubscribed, options.timeout_seconds),
      small_(memory_, waiting_, kernels_, rank_, size_),
      push_(memory_, waiting_, kernels_, rank_, size_),
      staged_(memory_, waiting_, kernels_, rank_, size_),
      single_copy_(memory_, waiting_, kernels_, watch_, rank_, size_, bootstrap.in_process(),
                   memory_.chunk_bytes()),
      one_shot_bytes_(options.one_shot_bytes ? memory_.one_shot_bytes()
                                             : std::min(kSurelyOneShot, memory_.one_shot_bytes())),
      tuner_(memory_, waiting_, rank_, size_, usable(options, obstacle_.empty())) {
  memory_.warm_up(bootstrap);
}

Staged::Job Node::job(const std::byte* input, std::byte* output, Type type, Op op, double scale) const {
  Staged::Job job{};
  job.input = input;
  job.output = output;
  job.type = type;
  job.op = op;
  job.scale = scale;
  return job;
}

// Elements of one owner in one chunk: whole lines, at least one. In the caches half a chunk is faster.
std::size_t Node::slice_of(const Staged::Job& work, std::size_t num_owners) const {
  const std::size_t chunk_bytes = memory_.chunk_bytes() / (work.streaming ? 1 : 2);
  return std::max<std::size_t>(chunk_bytes / num_owners / kLine, 1) * kLine / width(work.type);
}

template <typename Move>
void Node::by_fastest(Timed kind, std::size_t num_bytes, Staged::Job* work, const Move& move) {
  const Variant variant = num_bytes <= one_shot_bytes_ ? Variant::one_shot : tuner_.next(kind, num_bytes);
  work->streaming = variant == Variant::streamed;
  work->rotates = !work->streaming && num_bytes >= kLeastRotating && num_bytes <= kMostRotating;
  const double start = monotonic_seconds();
  if (!move(variant)) move(Variant::staged);
  if (num_bytes > one_shot_bytes_) tuner_.done(start, monotonic_seconds());
}

void Node::allreduce(std::byte* data, std::size_t count, Type type, Op op, double scale) {
  const std::size_t num_bytes = count * width(type);
  if (num_bytes <= InlineLine::kPayloadBytes) return small_.allreduce_inline(data, count, type, op, scale);
  Staged::Job work = job(data, data, type, op, scale);
  by_fastest(Timed::allreduce, num_bytes, &work, [&](Variant variant) {
    if (variant == Variant::single_copy) return single_copy_.allreduce(work, count);
    const auto owners = static_cast<std::size_t>(size_);
    if (variant == Variant::one_shot) {
      small_.allreduce_one_shot(work, count);
    } else {
      staged_.allreduce(work,
                        Slices::interleaved(count, owners, slice_of(work, owners), kLine / width(type)));
    }
    return true;
  });
}

void Node::allreduce(const SharedArray& array, std::byte* data, std::size_t count, Type type, Op op,
                     double scale) {
  if (count * width(type) <= InlineLine::kPayloadBytes) {
    return small_.allreduce_inline(data, count, type, op, scale);
  }
  push_.arrive(array.name_of(data), count);
  const std::size_t line = kLine / width(type);
  const std::size_t lines = (count + line - 1) / line;
  const Range own = part({0, lines}, static_cast<std::size_t>(rank_), static_cast<std::size_t>(size_));
  push_.allreduce_slice(buffers(array, data),
                        {std::min(count, own.begin * line), std::min(count, own.end * line)}, type, op,
                        scale);
  push_.leave();
}

std::vector<std::byte*> Node::buffers(const SharedArray& array, const std::byte* data) const {
  std::vector<std::byte*> all;
  for (int q = 0; q < size_; ++q) all.push_back(array.of_rank(q, data));
  return all;
}

void Node::reduce_scatter(const std::byte* input, std::byte* output, std::size_t output_begin, Type type,
                          Op op, double scale, const std::vector<Range>& blocks) {
  Staged::Job work = job(input, output, type, op, scale);
  work.output_begin = output_begin;
  exchange_blocks(Timed::reduce_scatter, &work, blocks);
}

void Node::allgather(const std::byte* input, std::size_t input_begin, std::byte* output, Type type,
                     const std::vector<Range>& blocks) {
  Staged::Job work = job(input, output, type, Op::sum, 1.0);
  work.input_begin = input_begin;
  exchange_blocks(Timed::allgather, &work, blocks);
}

// A broadcast is an allgather of which one rank brings everything.
void Node::exchange_blocks(Timed kind, Staged::Job* work, const std::vector<Range>& blocks) {
  std::size_t count = 0;
  for (const Range& block : blocks) count += block.size();
  const std::size_t num_bytes = count * width(work->type);
  const bool reduces = kind == Timed::reduce_scatter, broadcasts = kind == Timed::broadcast;
  by_fastest(kind, num_bytes, work, [&](Variant variant) {
    if (variant == Variant::single_copy) {
      return reduces      ? single_copy_.reduce_scatter(*work, blocks)
             : broadcasts ? single_copy_.broadcast(*work, blocks)
                          : single_copy_.allgather(*work, blocks);
    }
    if (variant == Variant::one_shot) {
      reduces ? small_.reduce_scatter_one_shot(*work, blocks) : small_.allgather_one_shot(*work, blocks);
      return true;
    }
    std::size_t slice = slice_of(*work, broadcasts ? (blocks.size() + 1) / 2 : blocks.size());
    if (broadcasts) slice = std::min(slice, piece_of_broadcast(num_bytes) / width(work->type));
    const Slices slices = Slices::blocks(blocks, slice);
    reduces ? staged_.reduce_scatter(*work, slices) : staged_.allgather(*work, slices);
    return true;
  });
}

// Bytes travel as the narrowest type there is; an odd one at the end goes by itself.
void Node::broadcast(std::byte* data, std::size_t num_bytes, int root) {
  Staged::Job work = job(data, data, Type::float16, Op::sum, 1.0);
  std::vector<Range> blocks(static_cast<std::size_t>(size_));
  blocks[static_cast<std::size_t>(root)] = {0, num_bytes / 2};
  exchange_blocks(Timed::broadcast, &work, blocks);
  if (num_bytes % 2) {
    std::vector<std::byte> all(static_cast<std::size_t>(size_));
    small_.allgather_inline(data + num_bytes - 1, all.data(), 1);
    data[num_bytes - 1] = all[static_cast<std::size_t>(root)];
  }
}

}  // namespace dlscale
