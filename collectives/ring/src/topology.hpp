// Which ranks share a node, and which stand at the same place of their nodes.
#pragma once

#include <mpi.h>

#include <vector>

namespace dlscale {

//   node  the ranks that can share memory; local_rank 0 .. node_size - 1 in order of rank. Nodes are numbered
//   in the
//         order of their first ranks, and all have equally many ranks;
//   lane  the ranks with the same local_rank, one of every node, in order of node.
class Topology {
 public:
  // Collective. Duplicates `comm`. `ranks_per_node`: cuts machines into nodes of so many ranks, to try
  // several nodes on one; 0: a machine is a node. Throws std::invalid_argument where nodes differ in size.
  Topology(MPI_Comm comm, int ranks_per_node);
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  // Frees the communicators; collective. Otherwise they stay.
  void free();

  MPI_Comm all = MPI_COMM_NULL;
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm lane = MPI_COMM_NULL;  // null on a single node

  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int node_size = 1;
  int node_index = 0;
  int num_nodes = 1;
  bool oversubscribed = false;  // the machine's ranks outnumber the CPUs that they may run on

  std::vector<std::vector<int>> ranks_of_node;
  const std::vector<int>& ranks_here() const { return ranks_of_node[static_cast<std::size_t>(node_index)]; }
  // Where a rank stands: its node and its local rank.
  std::vector<int> node_of_rank;
  std::vector<int> local_rank_of;
};

}  // namespace dlscale
