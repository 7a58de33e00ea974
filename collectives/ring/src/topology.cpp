#include "topology.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
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

// The ranks of the machine that may run on each CPU, and whether this rank may.
//
// Each rank's own affinity mask says little (a pinned rank sees one CPU however many there are). CPU quotas
// of containers, and ranks pinned to one CPU beside free ones, are not seen; waiting copes with them, only
// somewhat later.
struct Cpus {
  // A kernel with more CPUs refuses, and we take them to be enough.
  static constexpr std::size_t kMost = 8192;
  std::vector<int> num_ranks = std::vector<int>(kMost, 0);
  std::vector<int> mine = std::vector<int>(kMost, 1);

  explicit Cpus(MPI_Comm machine) {
    std::array<unsigned long, kMost / kBits> mask{};
    if (sched_getaffinity(0, sizeof(mask), reinterpret_cast<cpu_set_t*>(mask.data())) >= 0) {
      for (std::size_t cpu = 0; cpu < kMost; ++cpu) {
        mine[cpu] = static_cast<int>(mask[cpu / kBits] >> cpu % kBits & 1);
      }
    }
    check(MPI_Allreduce(mine.data(), num_ranks.data(), static_cast<int>(kMost), MPI_INT, MPI_SUM, machine),
          "MPI_Allreduce");
  }

  // Of all ranks together.
  int count() const {
    return static_cast<int>(std::count_if(num_ranks.begin(), num_ranks.end(), [](int n) { return n > 0; }));
  }

  int own_share() const {
    double share = 0;
    for (std::size_t cpu = 0; cpu < kMost; ++cpu) {
      if (mine[cpu]) share += 1.0 / num_ranks[cpu];
    }
    return std::max(1, static_cast<int>(share + 1e-6));
  }

 private:
  static constexpr std::size_t kBits = 8 * sizeof(unsigned long);
};

}  // namespace

Topology::Topology(MPI_Comm comm, int ranks_per_node) {
  check(MPI_Comm_dup(comm, &all), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  rank = rank_in(all);
  size = size_of(all);

  check(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  const Cpus cpus(node);
  oversubscribed = size_of(node) > cpus.count();
  num_own_cpus = cpus.own_share();
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
