#include "node.hpp"

#include <utility>

namespace dlscale {
namespace {

// Small messages are in a few pieces, so that one is reduced while the next crosses.
constexpr std::size_t kMostSmall = 64 * 1024, kLeastPiece = 4 * 1024, kMostPiece = 16 * 1024;
// Without other orders, other variants are tried for what is larger than this.
constexpr std::size_t kSurelyOneShot = 4 * 1024;

std::size_t in_lines(std::size_t num_bytes) { return (num_bytes + kLine - 1) / kLine * kLine; }

std::vector<Variant> usable(const NodeOptions& options, bool single_copies) {
  std::vector<Variant> variants = options.variants;
  if (!single_copies) {
    variants.erase(std::remove(variants.begin(), variants.end(), Variant::single_copy), variants.end());
  }
  return variants;
}

// One-shot reads all ranks' elements on every rank, so it pays less the more ranks there are.
std::size_t most_one_shot(const NodeOptions& options, int size) {
  if (options.one_shot_bytes) return options.one_shot_bytes;
  return std::clamp<std::size_t>(128 * 1024 / static_cast<std::size_t>(size), kSurelyOneShot, 64 * 1024);
}

// Elements of a piece of so many.
std::size_t piece_of(std::size_t count, std::size_t element) {
  return std::clamp(count * element / 4 / kLine * kLine, kLeastPiece, kMostPiece) / element;
}

// The root stages a piece while the others take the one before.
std::size_t piece_of_broadcast(std::size_t num_bytes) {
  constexpr std::size_t kLeast = 16 * 1024, kNumPieces = 8;
  return std::max(kLeast, num_bytes / kNumPieces / kLine * kLine);
}

Job job_of(const std::byte* input, std::byte* output, Type type, Op op, double scale) {
  Job job{};
  job.input = input;
  job.output = output;
  job.type = type;
  job.op = op;
  job.scale = scale;
  return job;
}

}  // namespace

Node::Node(Bootstrap& bootstrap, std::vector<int> global_ranks, bool oversubscribed,
           const NodeOptions& options, const Kernels& kernels)
    : rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      in_process_(bootstrap.in_process()),
      chunk_bytes_(std::max(in_lines(options.chunk_bytes), static_cast<std::size_t>(size_) * kLine)),
      one_shot_bytes_(std::min(kSurelyOneShot, most_one_shot(options, size_))),
      memory_(bootstrap, std::max(chunk_bytes_, kMostPiece), options.huge_pages),
      watch_(bootstrap),
      obstacle_(options.single_copy ? dlscale::obstacle_to_single_copies(bootstrap, watch_) : "not wanted"),
      waiting_(watch_, &memory_.control_block(0).failure, memory_.waits_for(size_), rank_,
               std::move(global_ranks), oversubscribed, options.timeout_seconds),
      inline_(memory_, waiting_, kernels, rank_, size_),
      staged_(memory_, waiting_, kernels, rank_, size_),
      rendezvous_(memory_, waiting_, rank_, size_),
      push_(rendezvous_, kernels, rank_, size_),
      single_copy_(rendezvous_, waiting_, kernels, watch_, rank_, size_, in_process_,
                   std::max<std::size_t>(chunk_bytes_ / static_cast<std::size_t>(size_) / kLine, 1) * kLine),
      tuner_(memory_, waiting_, rank_, size_, usable(options, obstacle_.empty()),
             most_one_shot(options, size_)) {
  memory_.warm_up(bootstrap);
}

void Node::allgather(const void* mine, void* all, std::size_t num_bytes) {
  std::vector<std::byte> parts(static_cast<std::size_t>(size_) * InlineLine::kPayloadBytes);
  for (std::size_t begin = 0; begin < num_bytes; begin += InlineLine::kPayloadBytes) {
    const std::size_t length = std::min(InlineLine::kPayloadBytes, num_bytes - begin);
    inline_.allgather(static_cast<const std::byte*>(mine) + begin, parts.data(), length);
    for (std::size_t q = 0; q < static_cast<std::size_t>(size_); ++q) {
      std::copy_n(&parts[q * length], length, static_cast<std::byte*>(all) + q * num_bytes + begin);
    }
  }
}

// Elements of one owner in one chunk: whole lines, at least one. In the caches a quarter of a chunk is
// faster.
std::size_t Node::slice_of(const Job& job, std::size_t num_owners) const {
  const std::size_t chunk_bytes = chunk_bytes_ / (job.streaming ? 1 : 4);
  return std::max<std::size_t>(chunk_bytes / num_owners / kLine, 1) * kLine / width(job.type);
}

template <typename Move>
void Node::by_fastest(Operation operation, std::size_t num_bytes, Job* job, const Move& move) {
  const bool timed = num_bytes > one_shot_bytes_;
  const Variant variant = timed ? tuner_.next(operation, num_bytes) : Variant::one_shot;
  job->streaming = variant == Variant::streamed;
  job->rotates =
      !job->streaming && num_bytes >= NodeMemory::kLeastRotating && num_bytes <= NodeMemory::kMostRotating;
  const double start = monotonic_seconds();
  if (!move(variant)) move(Variant::staged);
  if (timed) tuner_.done(start, monotonic_seconds());
}

void Node::allreduce(std::byte* data, std::size_t count, Type type, Op op, double scale) {
  const std::size_t num_bytes = count * width(type);
  if (num_bytes <= InlineLine::kPayloadBytes) return inline_.allreduce(data, count, type, op, scale);
  Job job = job_of(data, data, type, op, scale);
  by_fastest(Operation::allreduce, num_bytes, &job, [&](Variant variant) {
    if (variant == Variant::single_copy) return single_copy_.allreduce(job, count);
    const auto owners = static_cast<std::size_t>(size_);
    if (variant == Variant::one_shot) {
      staged_.allreduce_one_shot(job, count, piece_of(count, width(type)));
    } else {
      staged_.allreduce(job, Slices::interleaved(count, owners, slice_of(job, owners), type));
    }
    return true;
  });
}

void Node::allreduce(const SharedArray& array, std::byte* data, std::size_t count, Type type, Op op,
                     double scale) {
  if (count * width(type) <= InlineLine::kPayloadBytes)
    return inline_.allreduce(data, count, type, op, scale);
  push_.open(array, data, count, type, op, scale);
  push_.allreduce_slice(part_in_lines(count, rank_, size_, type));
  push_.close();
}

void Node::reduce_scatter(const std::byte* input, std::byte* output, std::size_t output_begin, Type type,
                          Op op, double scale, const std::vector<Range>& blocks) {
  Job job = job_of(input, output, type, op, scale);
  job.output_begin = output_begin;
  exchange_blocks(Operation::reduce_scatter, &job, blocks);
}

void Node::allgather(const std::byte* input, std::size_t input_begin, std::byte* output, Type type,
                     const std::vector<Range>& blocks) {
  Job job = job_of(input, output, type, Op::sum, 1.0);
  job.input_begin = input_begin;
  exchange_blocks(Operation::allgather, &job, blocks);
}

// A broadcast is an allgather of which one rank brings everything.
void Node::exchange_blocks(Operation operation, Job* job, const std::vector<Range>& blocks) {
  const std::size_t element = width(job->type), num_bytes = count_of(blocks) * element;
  const bool reduces = operation == Operation::reduce_scatter, broadcasts = operation == Operation::broadcast;
  by_fastest(operation, num_bytes, job, [&](Variant variant) {
    if (variant == Variant::single_copy) {
      return reduces      ? single_copy_.reduce_scatter(*job, blocks)
             : broadcasts ? single_copy_.broadcast(*job, blocks)
                          : single_copy_.allgather(*job, blocks);
    }
    std::size_t slice = slice_of(*job, broadcasts ? (blocks.size() + 1) / 2 : blocks.size());
    if (broadcasts) slice = std::min(slice, piece_of_broadcast(num_bytes) / element);
    if (num_bytes <= kMostSmall) {
      std::size_t longest = 0;
      for (const Range& block : blocks) longest = std::max(longest, block.size());
      slice = std::min(slice, piece_of(longest, element));
    }
    const Slices slices = Slices::blocks(blocks, slice);
    reduces ? staged_.reduce_scatter(*job, slices) : staged_.allgather(*job, slices);
    return true;
  });
}

// Bytes travel as the narrowest type there is; an odd one at the end goes by itself.
void Node::broadcast(std::byte* data, std::size_t num_bytes, int root) {
  Job job = job_of(data, data, Type::float16, Op::sum, 1.0);
  std::vector<Range> blocks(static_cast<std::size_t>(size_));
  blocks[static_cast<std::size_t>(root)] = {0, num_bytes / 2};
  exchange_blocks(Operation::broadcast, &job, blocks);
  if (num_bytes % 2) {
    std::vector<std::byte> all(static_cast<std::size_t>(size_));
    inline_.allgather(data + num_bytes - 1, all.data(), 1);
    data[num_bytes - 1] = all[static_cast<std::size_t>(root)];
  }
}

}  // namespace dlscale
