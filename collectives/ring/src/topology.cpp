#include "topology.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <map>

#include "mpi_calls.hpp"

namespace dlscale {
namespace {

int rank_in(MPI_Comm comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

// Each rank's own affinity mask says little (a pinned rank sees one CPU however many there are), hence the
// union over the ranks of the machine. CPU quotas of containers, and ranks pinned to one CPU beside free
// ones, are not seen; waiting copes with them, only somewhat later.
bool ranks_outnumber_cpus(MPI_Comm machine) {
  // One bit per CPU, up to 8192. A kernel with more refuses, and we take its CPUs to be enough.
  std::array<unsigned long, 8192 / (8 * sizeof(unsigned long))> mask{};
  if (sched_getaffinity(0, sizeof(mask), reinterpret_cast<cpu_set_t*>(mask.data())) < 0) mask.fill(~0UL);
  check(MPI_Allreduce(MPI_IN_PLACE, mask.data(), static_cast<int>(mask.size()), MPI_UNSIGNED_LONG, MPI_BOR,
                      machine),
        "MPI_Allreduce");
  std::size_t num_cpus = 0;
  for (const unsigned long word : mask) num_cpus += std::bitset<8 * sizeof(word)>(word).count();
  return static_cast<std::size_t>(size_of(machine)) > num_cpus;
}

}  // namespace

Topology::Topology(MPI_Comm comm, int ranks_per_node) {
  check(MPI_Comm_dup(comm, &all), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  rank = rank_in(all);
  size = size_of(all);

  check(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  oversubscribed = ranks_outnumber_cpus(node);
  if (ranks_per_node > 0) {
    MPI_Comm machine = node;
    check(MPI_Comm_split(machine, rank_in(machine) / ranks_per_node, rank, &node), "MPI_Comm_split");
    check(MPI_Comm_free(&machine), "MPI_Comm_free");
  }
  local_rank = rank_in(node);
  node_size = size_of(node);

  int first = rank;  // of this node: what it is known by
  check(MPI_Bcast(&first, 1, MPI_INT, 0, node), "MPI_Bcast");
  std::vector<int> first_of(static_cast<std::size_t>(size));
  check(MPI_Allgather(&first, 1, MPI_INT, first_of.data(), 1, MPI_INT, all), "MPI_Allgather");
  std::map<int, std::vector<int>> nodes;
  for (int r = 0; r < size; ++r) nodes[first_of[static_cast<std::size_t>(r)]].push_back(r);
  node_of_rank.resize(static_cast<std::size_t>(size));
  local_rank_of.resize(static_cast<std::size_t>(size));
  num_lanes = node_size;
  for (auto& [known_by, ranks] : nodes) {
    if (known_by == first) node_index = static_cast<int>(ranks_of_node.size());
    for (std::size_t l = 0; l < ranks.size(); ++l) {
      node_of_rank[static_cast<std::size_t>(ranks[l])] = static_cast<int>(ranks_of_node.size());
      local_rank_of[static_cast<std::size_t>(ranks[l])] = static_cast<int>(l);
    }
    num_lanes = std::min(num_lanes, static_cast<int>(ranks.size()));
    equal_nodes = equal_nodes && (ranks_of_node.empty() || ranks.size() == ranks_of_node.front().size());
    ranks_of_node.push_back(std::move(ranks));
  }
  num_nodes = static_cast<int>(ranks_of_node.size());

  const int color = num_nodes > 1 && local_rank < num_lanes ? local_rank : MPI_UNDEFINED;
  check(MPI_Comm_split(all, color, node_index, &lane), "MPI_Comm_split");
}

void Topology::free() {
  for (MPI_Comm* comm : {&lane, &node, &all}) {
    if (*comm != MPI_COMM_NULL) check(MPI_Comm_free(comm), "MPI_Comm_free");
    *comm = MPI_COMM_NULL;
  }
}

}  // namespace dlscale
