#include "topology.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

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

// Whether this rank may run on each CPU, and how many ranks of the machine may.
//
// Each rank's own affinity mask says little (a pinned rank sees one CPU however many there are). CPU quotas
// of containers, and ranks pinned to one CPU beside free ones, are not seen; waiting copes with them, only
// somewhat later.
class Cpus {
 public:
  explicit Cpus(MPI_Comm machine) : mine_(own_cpus()) {
    auto num_cpus = static_cast<int>(mine_.size());
    check(MPI_Allreduce(MPI_IN_PLACE, &num_cpus, 1, MPI_INT, MPI_MAX, machine), "MPI_Allreduce");
    mine_.resize(static_cast<std::size_t>(num_cpus));
    num_ranks_.resize(mine_.size());
    // MPICH has the kernel copy what is larger, and ends the program where the kernel refuses.
    constexpr int kAtOnce = 1024;
    for (int begin = 0; begin < num_cpus; begin += kAtOnce) {
      check(MPI_Allreduce(mine_.data() + begin, num_ranks_.data() + begin,
                          std::min(kAtOnce, num_cpus - begin), MPI_INT, MPI_SUM, machine),
            "MPI_Allreduce");
    }
  }

  // Of all ranks together.
  int count() const {
    return static_cast<int>(std::count_if(num_ranks_.begin(), num_ranks_.end(), [](int n) { return n > 0; }));
  }

 private:
  // 1 for each CPU that this rank may run on, up to the last such one.
  static std::vector<int> own_cpus() {
    constexpr std::size_t kMost = 8192, kBits = 8 * sizeof(unsigned long);
    std::array<unsigned long, kMost / kBits> mask{};
    // A kernel with more CPUs refuses, and we take them to be enough.
    if (sched_getaffinity(0, sizeof(mask), reinterpret_cast<cpu_set_t*>(mask.data())) < 0) mask.fill(~0UL);
    std::vector<int> own(kMost);
    for (std::size_t cpu = 0; cpu < kMost; ++cpu)
      own[cpu] = static_cast<int>(mask[cpu / kBits] >> cpu % kBits & 1);
    while (!own.empty() && !own.back()) own.pop_back();
    return own;
  }

  std::vector<int> mine_;
  std::vector<int> num_ranks_;
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
  if (ranks_per_node) {
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
  std::size_t fewest = nodes.begin()->second.size(), most = fewest;
  for (auto& [known_by, ranks] : nodes) {
    if (known_by == first) node_index = static_cast<int>(ranks_of_node.size());
    for (std::size_t l = 0; l < ranks.size(); ++l) {
      node_of_rank[static_cast<std::size_t>(ranks[l])] = static_cast<int>(ranks_of_node.size());
      local_rank_of[static_cast<std::size_t>(ranks[l])] = static_cast<int>(l);
    }
    fewest = std::min(fewest, ranks.size());
    most = std::max(most, ranks.size());
    ranks_of_node.push_back(std::move(ranks));
  }
  num_nodes = static_cast<int>(ranks_of_node.size());
  if (fewest != most) {
    free();
    throw std::invalid_argument("nodes have from " + std::to_string(fewest) + " to " + std::to_string(most) +
                                " ranks; the ring needs the same number on every node, or ranks_per_node=1");
  }
  if (num_nodes > 1) check(MPI_Comm_split(all, local_rank, node_index, &lane), "MPI_Comm_split");
}

void Topology::free() {
  for (MPI_Comm* comm : {&lane, &node, &all}) {
    if (*comm != MPI_COMM_NULL) check(MPI_Comm_free(comm), "MPI_Comm_free");
    *comm = MPI_COMM_NULL;
  }
}

}  // namespace dlscale
