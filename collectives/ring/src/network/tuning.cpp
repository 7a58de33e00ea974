#include "tuning.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace dlscale::network {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 30;

void check_segment(std::size_t num_bytes) {
  if (num_bytes > 0 && num_bytes <= kMaxMessageBytes) return;
  throw std::invalid_argument("a segment of " + std::to_string(num_bytes) + " bytes; give 1 .. " +
                              std::to_string(kMaxMessageBytes));
}

}  // namespace

Plan Tuning::plan(Operation operation, std::size_t count, std::size_t width, bool in_rank_order,
                  std::size_t root) const {
  const std::size_t num_bytes = count * width;
  const Algorithm chosen = algorithm(operation, num_bytes, in_rank_order);
  return {operation, chosen, count, std::max<std::size_t>(segment_bytes(chosen, num_bytes) / width, 1), root};
}

Algorithm Tuning::algorithm(Operation operation, std::size_t num_bytes, bool in_rank_order) const {
  switch (operation) {
    case Operation::broadcast:
      return Algorithm::tree;
    case Operation::barrier:
      return Algorithm::dissemination;
    case Operation::reduce_scatter:
    case Operation::allgather:
      return in_rank_order || num_bytes <= direct_bytes ? Algorithm::direct : Algorithm::ring;
    case Operation::allreduce:
      break;
  }
  if (num_bytes <= one_shot_bytes) return Algorithm::one_shot;
  if (in_rank_order) return Algorithm::direct;
  if (num_bytes <= recursive_doubling_bytes) return Algorithm::recursive_doubling;
  if (num_bytes <= halving_doubling_bytes) return Algorithm::halving_doubling;
  return Algorithm::ring;
}

std::size_t Tuning::segment_bytes(Algorithm algorithm, std::size_t num_bytes) const {
  if (algorithm == Algorithm::direct || algorithm == Algorithm::one_shot) return direct_segment_bytes;
  const auto found = std::find_if(segments.begin(), segments.end(),
                                  [&](const Segment& segment) { return num_bytes <= segment.up_to_bytes; });
  return (found == segments.end() ? segments.back() : *found).segment_bytes;
}

void Tuning::check() const {
  if (window == 0) throw std::invalid_argument("window is 0; give at least 1 message");
  if (segments.empty()) throw std::invalid_argument("no segment size is given");
  for (const Segment& segment : segments) check_segment(segment.segment_bytes);
  check_segment(direct_segment_bytes);
}

Tuning default_tuning(std::size_t num_ranks) {
  Tuning tuning;
  // Two ranks send as much one-shot as in any other way.
  tuning.one_shot_bytes = num_ranks <= 2 ? 64 * kKiB : 0;
  tuning.recursive_doubling_bytes = 16 * kKiB;
  tuning.halving_doubling_bytes = 512 * kKiB;
  tuning.direct_bytes = 64 * kKiB;
  // At least four segments a chunk, so that one is added while others travel.
  tuning.segments = {{num_ranks * 1024 * kKiB, 64 * kKiB},
                     {num_ranks * 4096 * kKiB, 256 * kKiB},
                     {std::numeric_limits<std::size_t>::max(), 512 * kKiB}};
  tuning.direct_segment_bytes = 64 * kKiB;
  tuning.window = 8;
  return tuning;
}

}  // namespace dlscale::network
