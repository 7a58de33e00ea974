// The allreduce of float32 that travels as bfloat16. Two roundings, however many ranks, each with its
// residual:
//
//   1. what is handed over to be added. One node: a rank's own values, when they go to the rank that owns the
//      sum. Several nodes: the sum of a node, in float32 in order of rank, when it leaves the node;
//   2. the sum of these, in float32 in order of rank (of node), times 1/P for an average.
//
// Everybody goes on with rounded values, also who rounded them. They are exchanged directly with the owner of
// an element, never added to in passing. Inside the nodes of several nothing is rounded: it would cost more
// time than it saves (docs/ring.md), and a third rounding.
#include <algorithm>
#include <cstdint>

#include "hierarchy.hpp"

namespace dlscale {

void Hierarchy::allreduce_rounded(const SharedArray* array, float* data, std::size_t count, Op op,
                                  Residual* residual) {
  if (topology_.size == 1) return;
  if (topology_.num_nodes == 1) {
    Rounding rounding;
    if (residual) rounding = {residual->contributions(), residual->results()};
    return node_.allreduce_rounded(data, count, scale_of(op), rounding);
  }
  auto* bytes = reinterpret_cast<std::byte*>(data);
  Push& push = node_.push();
  const std::vector<std::byte*> buffers = array ? node_.buffers(*array, bytes) : std::vector<std::byte*>();
  const auto local = static_cast<std::size_t>(topology_.local_rank);
  const double scale = scale_of(op);

  // Of one block on its way; another one serves the next block.
  const std::size_t longest = std::min(count, block_bytes_ / sizeof(float)) * width(Type::bfloat16);
  std::byte* halves = scratch(2 * longest);
  std::size_t num_rounded = 0, num_spread = 0;
  const auto half = [=](std::size_t turn) { return halves + turn % 2 * longest; };

  if (array) arrive(*array, bytes, count);
  in_blocks(
      count, Type::float32,
      [&](const std::vector<Range>& lanes) {
        const Range own = lanes[local];
        if (array) {
          push.reduce_slice(buffers, own, Type::float32, Op::sum, 1.0);
        } else if (topology_.node_size > 1) {
          node_.reduce_scatter(bytes, bytes, 0, Type::float32, Op::sum, 1.0, lanes);
        }
        float* kept = residual ? residual->contributions() + own.begin : nullptr;
        if (own.size()) {
          node_.kernels().round_keeping(half(num_rounded), data + own.begin, kept, own.size(), false);
        }
        ++num_rounded;
      },
      [&](Range own) {
        std::byte* values = half(num_rounded - 1);
        float* kept = residual ? residual->results() + own.begin : nullptr;
        const auto reduce = [this, values, kept, scale](void* into, const void* const* sources,
                                                        std::size_t num_sources, std::size_t num_elements,
                                                        bool) {
          const auto offset = static_cast<std::uint16_t*>(into) - reinterpret_cast<std::uint16_t*>(values);
          node_.kernels().reduce_rounded({nullptr, into, sources, num_sources, nullptr,
                                          kept ? kept + offset : nullptr, num_sources, num_elements, scale});
        };
        exchange_->start_allreduce(values, own.size(), {width(Type::bfloat16), reduce, true, true});
      },
      [&](const std::vector<Range>& lanes) {
        const Range own = lanes[local];
        if (own.size()) node_.kernels().from_bfloat16(data + own.begin, half(num_spread), own.size());
        ++num_spread;
        if (array) {
          push.push_slice(buffers, own, Type::float32);
        } else if (topology_.node_size > 1) {
          node_.allgather(bytes, 0, bytes, Type::float32, lanes);
        }
      });
  if (array) push.leave();
}

}  // namespace dlscale
