// The operations over all ranks, put together from those inside a node and those between nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "error_propagation.hpp"
#include "mpi_calls.hpp"
#include "network/exchange.hpp"
#include "network/mpi_transport.hpp"
#include "node/node.hpp"
#include "topology.hpp"

namespace dlscale {

// One node alone: everything over shared memory. One rank per node: everything over messages. Several ranks
// on several nodes: each rank reduces its part of the node's sum, exchanges it with its lane, and
// hands it to its node; all ranks reduce, and all lanes send at the same time. Large buffers go in blocks:
// while one is exchanged, the next is reduced. docs/ring-design.md has a picture.
class Hierarchy {
 public:
  // Collective. The topology must outlive it.
  Hierarchy(const Topology& topology, const NodeOptions& options, const network::Tuning& tuning,
            std::size_t block_bytes, const Kernels& kernels);

  void allreduce(std::byte* data, std::size_t count, Type type, Op op);
  void allreduce(const SharedArray& array, std::byte* data, std::size_t count, Type type, Op op);
  // input: `size` blocks of `count`; output: this rank's block of the reduction over ranks.
  void reduce_scatter(const std::byte* input, std::byte* output, std::size_t count, Type type, Op op);
  // output: `size` blocks of `count`, rank r's input at block r.
  void allgather(const std::byte* input, std::byte* output, std::size_t count, Type type);
  void broadcast(std::byte* data, std::size_t num_bytes, int root);
  void barrier();

  Node& node() { return node_; }

  // After a failure of this rank: tells the ranks of the own node, and those of other nodes, why.
  void propagate(const std::exception& error);

 private:
  double scale_of(Op op) const { return op == Op::average ? 1.0 / topology_.size : 1.0; }
  std::vector<Range> lanes_of(Range block, Type type) const;
  void over_network(const std::function<void(network::Exchange&)>& start);
  void finish_network();
  bool progress_network();
  [[noreturn]] void raise_cause_of(const network::PartnerFailure& failure);
  // Throws RankFailure if a rank of another node has reported one.
  void raise_reported();
  int rank_on_lane(int node) const;
  int awaited_rank() const;
  [[noreturn]] void raise_silent(double seconds);
  void in_blocks(std::byte* data, std::size_t count, const network::Arithmetic& arithmetic,
                 const std::function<void(const std::vector<Range>&)>& reduce,
                 const std::function<void(const std::vector<Range>&)>& spread);
  std::vector<Range> blocks_of(std::size_t node, std::size_t count) const;
  std::byte* scratch(std::size_t num_bytes);

  const Topology& topology_;
  MpiBootstrap bootstrap_;
  Node node_;
  std::size_t block_bytes_;
  std::unique_ptr<network::MpiTransport> transport_;  // none: one node alone
  std::unique_ptr<network::Exchange> exchange_;
  ErrorPropagation errors_;
  std::uint64_t num_exchanges_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace dlscale
