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
  const std::size_t line = kLine / width(type);
  const std::size_t lines = (block.size() + line - 1) / line;
  std::vector<Range> ranges(static_cast<std::size_t>(topology_.node_size));
  for (std::size_t l = 0; l < static_cast<std::size_t>(topology_.num_lanes); ++l) {
    const Range own = part({0, lines}, l, static_cast<std::size_t>(topology_.num_lanes));
    ranges[l] = {std::min(block.end, block.begin + own.begin * line),
                 std::min(block.end, block.begin + own.end * line)};
  }
  return ranges;
}

// Block k is reduced in the node while k - 1 is exchanged; then k - 1 is spread while k is exchanged.
void Hierarchy::in_blocks(std::size_t count, Type type,
                          const std::function<void(const std::vector<Range>&)>& reduce,
                          const std::function<void(Range)>& start,
                          const std::function<void(const std::vector<Range>&)>& spread) {
  const std::size_t block = std::max<std::size_t>(block_bytes_ / width(type), 1);
  const std::size_t num_blocks = (count + block - 1) / block;
  const auto lanes = [&](std::size_t k) {
    return lanes_of({k * block, std::min(count, (k + 1) * block)}, type);
  };
  node_.waiting().set_progress([this] {
    if (exchange_) progress_network();
  });
  try {
    for (std::size_t k = 0; k < num_blocks + 1; ++k) {
      if (k < num_blocks) reduce(lanes(k));
      finish_network();
      if (k < num_blocks && exchange_) start(lanes(k)[static_cast<std::size_t>(topology_.local_rank)]);
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
  arithmetic_ = network::arithmetic(type, op, scale_of(op));
  if (topology_.node_size == 1 && topology_.num_lanes == 1 && topology_.equal_nodes) {
    return over_network([&](network::Exchange& e) { e.start_allreduce(data, count, arithmetic_); });
  }
  if (count * width(type) <= kSmallBytes) {
    node_.allreduce(data, count, type, op, 1.0);
    if (topology_.local_rank == 0) {
      over_network([&](network::Exchange& e) { e.start_allreduce(data, count, arithmetic_); });
    }
    return node_.broadcast(data, count * width(type), 0);
  }
  in_blocks(
      count, type,
      [&](const std::vector<Range>& lanes) { node_.reduce_scatter(data, data, 0, type, op, 1.0, lanes); },
      [&](Range own) { exchange_->start_allreduce(data + own.begin * width(type), own.size(), arithmetic_); },
      [&](const std::vector<Range>& lanes) { node_.allgather(data, 0, data, type, lanes); });
}

// Other nodes may have begun: ranks of this one that disagree cannot refuse and go on as if nothing had been.
void Hierarchy::arrive(const SharedArray& array, const std::byte* data, std::size_t count) {
  try {
    node_.push().arrive(array.name_of(data), count);
  } catch (const std::invalid_argument& refusal) {
    throw std::runtime_error(refusal.what());
  }
}

void Hierarchy::allreduce(const SharedArray& array, std::byte* data, std::size_t count, Type type, Op op) {
  if (topology_.num_nodes == 1) return node_.allreduce(array, data, count, type, op, scale_of(op));
  if (topology_.node_size == 1 || count * width(type) <= kSmallBytes) return allreduce(data, count, type, op);
  Push& push = node_.push();
  const std::vector<std::byte*> buffers = node_.buffers(array, data);
  const std::size_t own = static_cast<std::size_t>(topology_.local_rank);
  arithmetic_ = network::arithmetic(type, op, scale_of(op));
  arrive(array, data, count);
  in_blocks(
      count, type,
      [&](const std::vector<Range>& lanes) { push.reduce_slice(buffers, lanes[own], type, op, 1.0); },
      [&](Range lane) {
        exchange_->start_allreduce(data + lane.begin * width(type), lane.size(), arithmetic_);
      },
      [&](const std::vector<Range>& lanes) { push.push_slice(buffers, lanes[own], type); });
  push.leave();
}

// ---- the other operations ----

std::byte* Hierarchy::scratch(std::size_t num_bytes) {
  if (scratch_.size() < num_bytes) scratch_.resize(num_bytes);
  return scratch_.data();
}

void Hierarchy::reduce_scatter(const std::byte* input, std::byte* output, std::size_t count, Type type,
                               Op op) {
  const std::size_t element = width(type);
  const auto block_of = [&](int rank) {
    return Range{static_cast<std::size_t>(rank) * count, static_cast<std::size_t>(rank + 1) * count};
  };
  if (!topology_.equal_nodes) {  // the blocks of a node's extra ranks have no lane to travel in
    const std::size_t total = static_cast<std::size_t>(topology_.size) * count;
    std::byte* sums = scratch(total * element);
    std::memcpy(sums, input, total * element);
    allreduce(sums, total, type, op);
    std::memcpy(output, sums + block_of(topology_.rank).begin * element, count * element);
    return;
  }
  const bool alone = topology_.num_nodes == 1;
  std::byte* sums = alone ? output : scratch(static_cast<std::size_t>(topology_.num_nodes) * count * element);
  for (std::size_t j = 0; j < topology_.ranks_of_node.size(); ++j) {
    std::vector<Range> blocks;
    for (const int rank : topology_.ranks_of_node[j]) blocks.push_back(block_of(rank));
    node_.reduce_scatter(input, sums + (alone ? 0 : j * count * element),
                         blocks[static_cast<std::size_t>(topology_.local_rank)].begin, type, op,
                         alone ? scale_of(op) : 1.0, blocks);
  }
  if (alone) return;
  arithmetic_ = network::arithmetic(type, op, scale_of(op));
  over_network([&](network::Exchange& e) {
    e.start_reduce_scatter(sums, static_cast<std::size_t>(topology_.num_nodes) * count, arithmetic_);
  });
  std::memcpy(output, sums + static_cast<std::size_t>(topology_.node_index) * count * element,
              count * element);
}

void Hierarchy::allgather(const std::byte* input, std::byte* output, std::size_t count, Type type) {
  const std::size_t element = width(type);
  const auto block_of = [&](int rank) {
    return Range{static_cast<std::size_t>(rank) * count, static_cast<std::size_t>(rank + 1) * count};
  };
  if (!topology_.equal_nodes) {
    std::memcpy(output + block_of(topology_.rank).begin * element, input, count * element);
    for (int r = 0; r < topology_.size; ++r) {
      broadcast(output + block_of(r).begin * element, count * element, r);
    }
    return;
  }
  const bool alone = topology_.num_nodes == 1;
  const std::byte* pieces = input;
  if (!alone) {
    std::byte* all = scratch(static_cast<std::size_t>(topology_.num_nodes) * count * element);
    std::memcpy(all + static_cast<std::size_t>(topology_.node_index) * count * element, input,
                count * element);
    over_network([&](network::Exchange& e) {
      e.start_allgather(all, static_cast<std::size_t>(topology_.num_nodes) * count, element);
    });
    pieces = all;
  }
  for (std::size_t j = 0; j < topology_.ranks_of_node.size(); ++j) {
    std::vector<Range> blocks;
    for (const int rank : topology_.ranks_of_node[j]) blocks.push_back(block_of(rank));
    node_.allgather(pieces + (alone ? 0 : j * count * element),
                    blocks[static_cast<std::size_t>(topology_.local_rank)].begin, output, type, blocks);
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
