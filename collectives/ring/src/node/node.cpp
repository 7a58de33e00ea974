#include "node.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

namespace dlscale {
namespace {

// Measured on two cores with a common last-level cache, on two without, and on two of which each keeps what
// it wrote in a large cache of its own (docs/ring.md).
std::vector<CopyVariant> default_variants() {
  constexpr std::size_t kKiB = 1024, kAny = ~std::size_t{0};
  return {
      {0, false, false, Way::one_shot},
      {0, false, false, Way::one_shot, 8 * kKiB, kAny, true},                 // near, and seen before
      {512 * kKiB, false, false},                                             // near, in the cache
      {512 * kKiB, false, false, Way::staged, 32 * kKiB, 1024 * kKiB, true},  // near, small
      {256 * kKiB, true, false, Way::staged, 1024 * kKiB},                    // near, out of the cache
      {1024 * kKiB, false, true},                                // far: no dirty line has to cross
      {1024 * kKiB, false, false, Way::single_copy, 32 * kKiB},  // far, and large caches
  };
}

std::vector<CopyVariant> variants_of(const NodeOptions& options) {
  return options.variants.empty() ? default_variants() : options.variants;
}

std::vector<CopyVariant> without_single_copies(std::vector<CopyVariant> variants) {
  variants.erase(std::remove_if(variants.begin(), variants.end(),
                                [](const CopyVariant& v) { return v.way == Way::single_copy; }),
                 variants.end());
  return variants;
}

// One-shot reads all ranks' elements on every rank, so it pays less the more ranks there are.
std::size_t one_shot_bytes_of(const NodeOptions& options, int size) {
  const std::size_t automatic =
      std::clamp<std::size_t>(128 * 1024 / static_cast<std::size_t>(size), 4 * 1024, 64 * 1024);
  const std::size_t bytes = options.one_shot_bytes ? options.one_shot_bytes : automatic;
  return (bytes + kLine - 1) / kLine * kLine;
}

// Without other orders, what is larger than this is tried by other ways too.
constexpr std::size_t kSurelyOneShot = 4 * 1024;

// The root stages a piece while the others take the one before.
std::size_t piece_of_broadcast(std::size_t num_bytes) {
  constexpr std::size_t kLeast = 16 * 1024, kNumPieces = 8;
  return std::max(kLeast, num_bytes / kNumPieces / kLine * kLine);
}

std::size_t largest_chunk(const NodeOptions& options) {
  std::size_t largest = 0;
  for (const CopyVariant& variant : variants_of(options)) largest = std::max(largest, variant.chunk_bytes);
  return (largest + kLine - 1) / kLine * kLine;
}

}  // namespace

Node::Node(Bootstrap& bootstrap, std::vector<int> global_ranks, bool oversubscribed,
           const NodeOptions& options, const Kernels& kernels)
    : rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      kernels_(kernels),
      memory_(bootstrap, one_shot_bytes_of(options, bootstrap.size()),
              std::max(largest_chunk(options), kLine * static_cast<std::size_t>(size_)), options.memory),
      watch_(bootstrap),
      obstacle_(options.single_copy ? dlscale::obstacle_to_single_copies(bootstrap, watch_) : "not wanted"),
      waiting_(watch_, &memory_.control_block(0).failure, memory_.waits_for(size_), rank_, global_ranks,
               oversubscribed, options.timeout_seconds),
      message_waiting_(watch_, &memory_.control_block(0).failure, memory_.waits_for(size_), rank_,
                       global_ranks, oversubscribed, options.timeout_seconds),
      message_link_(memory_, message_waiting_, watch_, std::move(global_ranks), rank_, obstacle_.empty(),
                    bootstrap.in_process()),
      crew_(options.num_cores, options.least_shared_bytes),
      small_(memory_, waiting_, kernels_, rank_, size_),
      push_(memory_, waiting_, kernels_, crew_, rank_, size_),
      staged_(memory_, waiting_, kernels_, crew_, rank_, size_),
      single_copy_(memory_, waiting_, kernels_, crew_, watch_, rank_, size_, bootstrap.in_process()),
      distance_(memory_, waiting_, rank_, size_),
      one_shot_bytes_(options.one_shot_bytes ? memory_.one_shot_bytes()
                                             : std::min(kSurelyOneShot, memory_.one_shot_bytes())) {
  memory_.warm_up(bootstrap);
  make_tuner(obstacle_.empty() ? variants_of(options) : without_single_copies(variants_of(options)),
             memory_.one_shot_bytes());
}

void Node::make_tuner(const std::vector<CopyVariant>& variants, std::size_t one_shot_bytes) {
  std::function<double()> hop_seconds;
  if (distance_.can_be_told()) hop_seconds = [this] { return distance_.hop_seconds(); };
  tuner_ = std::make_unique<OnlineTuner>(memory_, waiting_, rank_, size_, variants, one_shot_bytes,
                                         std::move(hop_seconds));
}

void Node::tune(std::size_t one_shot_bytes, const std::vector<CopyVariant>& variants) {
  if (one_shot_bytes > memory_.one_shot_bytes()) {
    throw std::invalid_argument("one_shot_bytes is " + std::to_string(one_shot_bytes) +
                                "; there is room for " + std::to_string(memory_.one_shot_bytes()));
  }
  for (const CopyVariant& variant : variants) {
    if (variant.chunk_bytes <= memory_.chunk_bytes()) continue;
    throw std::invalid_argument("chunk_bytes is " + std::to_string(variant.chunk_bytes) +
                                "; there is room for " + std::to_string(memory_.chunk_bytes()));
  }
  make_tuner(variants, one_shot_bytes);
  one_shot_bytes_ = one_shot_bytes;
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

// Elements of one owner in one chunk: whole lines, at least one.
std::size_t Node::slice_of(const CopyVariant& variant, Type type, std::size_t num_owners) const {
  const std::size_t lines = std::max<std::size_t>(variant.chunk_bytes / num_owners / kLine, 1);
  return lines * kLine / width(type);
}

void Node::allreduce(std::byte* data, std::size_t count, Type type, Op op, double scale) {
  const std::size_t num_bytes = count * width(type);
  if (num_bytes <= InlineLine::kPayloadBytes) return small_.allreduce_inline(data, count, type, op, scale);
  Staged::Job work = job(data, data, type, op, scale);
  if (num_bytes <= one_shot_bytes_) return small_.allreduce_one_shot(work, count);
  work.variant = tuner_->next(Timed::allreduce, num_bytes);
  const double start = monotonic_seconds();
  const std::size_t owners = static_cast<std::size_t>(size_);
  switch (work.variant.way) {
    case Way::one_shot:
      small_.allreduce_one_shot(work, count);
      break;
    case Way::single_copy:
      if (single_copy_.allreduce(work, count)) break;
      [[fallthrough]];
    case Way::staged:
      staged_.allreduce(work, Slices::interleaved(count, owners, slice_of(work.variant, type, owners),
                                                  kLine / width(type)));
      break;
  }
  tuner_->done(start, monotonic_seconds());
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
  const auto one_shot = [&] {
    reduces ? small_.reduce_scatter_one_shot(*work, blocks) : small_.allgather_one_shot(*work, blocks);
  };
  if (num_bytes <= one_shot_bytes_) return one_shot();
  work->variant = tuner_->next(kind, num_bytes);
  const double start = monotonic_seconds();
  switch (work->variant.way) {
    case Way::one_shot:
      one_shot();
      break;
    case Way::single_copy:
      if (reduces      ? single_copy_.reduce_scatter(*work, blocks)
          : broadcasts ? single_copy_.broadcast(*work, blocks)
                       : single_copy_.allgather(*work, blocks)) {
        break;
      }
      [[fallthrough]];
    case Way::staged:
      std::size_t slice =
          slice_of(work->variant, work->type, broadcasts ? (blocks.size() + 1) / 2 : blocks.size());
      if (broadcasts) slice = std::min(slice, piece_of_broadcast(num_bytes) / width(work->type));
      const Slices slices = Slices::blocks(blocks, slice);
      reduces ? staged_.reduce_scatter(*work, slices) : staged_.allgather(*work, slices);
      break;
  }
  tuner_->done(start, monotonic_seconds());
}

void Node::allreduce_rounded(float* data, std::size_t count, double scale, const Rounding& rounding) {
  if (size_ == 1) return;
  auto* bytes = reinterpret_cast<std::byte*>(data);
  Staged::Job work = job(bytes, bytes, Type::float32, Op::sum, scale);
  work.rounding = &rounding;
  work.variant = tuner_->next(Timed::rounded, count * sizeof(float));
  const double start = monotonic_seconds();
  const std::size_t line = kLine / width(Type::bfloat16);
  const std::size_t num_lines = (count + line - 1) / line;
  std::vector<Range> blocks;
  for (std::size_t q = 0; q < static_cast<std::size_t>(size_); ++q) {
    const Range lines = part({0, num_lines}, q, static_cast<std::size_t>(size_));
    blocks.push_back({std::min(count, lines.begin * line), std::min(count, lines.end * line)});
  }
  const std::size_t slice = slice_of(work.variant, Type::bfloat16, blocks.size());
  staged_.allreduce(work, Slices::blocks(std::move(blocks), slice));
  tuner_->done(start, monotonic_seconds());
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
