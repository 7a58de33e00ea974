#include "hierarchy.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace dlscale {
namespace {

constexpr std::size_t kSmallBytes = 64 * 1024;  // one lane carries it all
constexpr int kErrorTag = 2;

}  // namespace

Hierarchy::Hierarchy(const Topology& topology, const NodeOptions& options, const network::Tuning& tuning,
                     std::size_t block_bytes, const Kernels& kernels)
    : topology_(topology),
      bootstrap_(topology.node),
      node_(bootstrap_, topology.ranks_here(), topology.oversubscribed, options, kernels),
      block_bytes_(block_bytes),
      errors_(topology.all, kErrorTag) {
  if (topology.lane == MPI_COMM_NULL) return;
  transport_ = std::make_unique<network::MpiTransport>(topology.lane);
  exchange_ = std::make_unique<network::Exchange>(*transport_, tuning);
}

// ---- allreduce ----

// The block cut into a range per lane, in whole cache lines.
std::vector<Range> Hierarchy::lanes_of(Range block, Type type) const {
  std::vector<Range> ranges;
  for (int l = 0; l < topology_.node_size; ++l) {
    const Range own = part_in_lines(block.size(), l, topology_.node_size, type);
    ranges.push_back({block.begin + own.begin, block.begin + own.end});
  }
  return ranges;
}

// Block k is reduced in the node while k - 1 is exchanged; then k - 1 is spread while k is exchanged.
void Hierarchy::in_blocks(std::byte* data, std::size_t count, const network::Arithmetic& arithmetic,
                          const std::function<void(const std::vector<Range>&)>& reduce,
                          const std::function<void(const std::vector<Range>&)>& spread) {
  const std::size_t element = width(arithmetic.type);
  const std::size_t block = std::max<std::size_t>(block_bytes_ / element, 1);
  const std::size_t num_blocks = (count + block - 1) / block;
  const auto lanes = [&](std::size_t k) {
    return lanes_of({k * block, std::min(count, (k + 1) * block)}, arithmetic.type);
  };
  node_.waiting().set_progress([this] { progress_network(); });
  try {
    for (std::size_t k = 0; k < num_blocks + 1; ++k) {
      if (k < num_blocks) reduce(lanes(k));
      finish_network();
      if (k < num_blocks) {
        const Range own = lanes(k)[static_cast<std::size_t>(topology_.local_rank)];
        exchange_->start_allreduce(data + own.begin * element, own.size(), arithmetic);
      }
      if (k >= 1) spread(lanes(k - 1));
    }
  } catch (...) {
    node_.waiting().set_progress({});
    throw;
  }
  node_.waiting().set_progress({});
}

void Hierarchy::allreduce(std::byte* data, std::size_t count, Type type, Op op) {
  if (topology_.num_nodes == 1) return node_.allreduce(data, count, type, op, scale_of(op));
  const network::Arithmetic arithmetic{type, op, scale_of(op)};
  const auto exchange = [&](network::Exchange& e) { e.start_allreduce(data, count, arithmetic); };
  if (topology_.node_size == 1) return over_network(exchange);
  if (count * width(type) <= kSmallBytes) {
    node_.allreduce(data, count, type, op, 1.0);
    if (topology_.local_rank == 0) over_network(exchange);
    return node_.broadcast(data, count * width(type), 0);
  }
  in_blocks(
      data, count, arithmetic,
      [&](const std::vector<Range>& lanes) { node_.reduce_scatter(data, data, 0, type, op, 1.0, lanes); },
      [&](const std::vector<Range>& lanes) { node_.allgather(data, 0, data, type, lanes); });
}

void Hierarchy::allreduce(const SharedArray& array, std::byte* data, std::size_t count, Type type, Op op) {
  if (topology_.num_nodes == 1) return node_.allreduce(array, data, count, type, op, scale_of(op));
  if (topology_.node_size == 1 || count * width(type) <= kSmallBytes) return allreduce(data, count, type, op);
  Push& push = node_.push();
  const auto own = static_cast<std::size_t>(topology_.local_rank);
  try {
    push.open(array, data, count, type, op, 1.0);
  } catch (const std::invalid_argument& refusal) {
    // Other nodes may have begun: ranks of this one cannot refuse and go on as if nothing had been.
    throw std::runtime_error(refusal.what());
  }
  in_blocks(
      data, count, {type, op, scale_of(op)},
      [&](const std::vector<Range>& lanes) { push.reduce_slice(lanes[own]); },
      [&](const std::vector<Range>& lanes) { push.push_slice(lanes[own]); });
  push.close();
}

// ---- the other operations ----

std::byte* Hierarchy::scratch(std::size_t num_bytes) {
  if (scratch_.size() < num_bytes) scratch_.resize(num_bytes);
  return scratch_.data();
}

// The blocks of `count` elements that the ranks of a node own.
std::vector<Range> Hierarchy::blocks_of(std::size_t node, std::size_t count) const {
  std::vector<Range> blocks;
  for (const int rank : topology_.ranks_of_node[node]) {
    blocks.push_back({static_cast<std::size_t>(rank) * count, static_cast<std::size_t>(rank + 1) * count});
  }
  return blocks;
}

// Each node reduces every node's blocks, and then the lanes reduce over nodes.
void Hierarchy::reduce_scatter(const std::byte* input, std::byte* output, std::size_t count, Type type,
                               Op op) {
  const std::size_t num_bytes = count * width(type), num_nodes = topology_.ranks_of_node.size();
  const bool alone = num_nodes == 1;
  std::byte* sums = alone ? output : scratch(num_nodes * num_bytes);
  for (std::size_t j = 0; j < num_nodes; ++j) {
    const std::vector<Range> blocks = blocks_of(j, count);
    node_.reduce_scatter(input, sums + j * num_bytes,
                         blocks[static_cast<std::size_t>(topology_.local_rank)].begin, type, op,
                         alone ? scale_of(op) : 1.0, blocks);
  }
  if (alone) return;
  over_network([&](network::Exchange& e) {
    e.start_reduce_scatter(sums, num_nodes * count, {type, op, scale_of(op)});
  });
  std::memcpy(output, sums + static_cast<std::size_t>(topology_.node_index) * num_bytes, num_bytes);
}

// The lanes gather their ranks' blocks, and then each node gathers those of its ranks.
void Hierarchy::allgather(const std::byte* input, std::byte* output, std::size_t count, Type type) {
  const std::size_t num_bytes = count * width(type), num_nodes = topology_.ranks_of_node.size();
  const std::byte* pieces = input;
  if (num_nodes > 1) {
    std::byte* all = scratch(num_nodes * num_bytes);
    std::memcpy(all + static_cast<std::size_t>(topology_.node_index) * num_bytes, input, num_bytes);
    over_network([&](network::Exchange& e) { e.start_allgather(all, num_nodes * count, width(type)); });
    pieces = all;
  }
  for (std::size_t j = 0; j < num_nodes; ++j) {
    const std::vector<Range> blocks = blocks_of(j, count);
    node_.allgather(pieces + j * num_bytes, blocks[static_cast<std::size_t>(topology_.local_rank)].begin,
                    output, type, blocks);
  }
}

void Hierarchy::broadcast(std::byte* data, std::size_t num_bytes, int root) {
  const int root_node = topology_.node_of_rank[static_cast<std::size_t>(root)];
  if (topology_.node_index == root_node) {
    node_.broadcast(data, num_bytes, topology_.local_rank_of[static_cast<std::size_t>(root)]);
  }
  if (topology_.num_nodes == 1) return;
  if (topology_.local_rank == 0) {
    over_network([&](network::Exchange& e) {
      e.start_broadcast(data, num_bytes, static_cast<std::size_t>(root_node));
    });
  }
  if (topology_.node_index != root_node) node_.broadcast(data, num_bytes, 0);
}

void Hierarchy::barrier() {
  node_.barrier();
  if (topology_.num_nodes == 1) return;
  if (topology_.local_rank == 0) over_network([](network::Exchange& e) { e.start_barrier(); });
  node_.barrier();
}

}  // namespace dlscale
