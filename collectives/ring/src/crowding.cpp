#include "crowding.hpp"

#include <array>
#include <bitset>
#include <cstddef>

#include "mpi_calls.hpp"

namespace dlscale {

bool ranks_outnumber_cpus(MPI_Comm comm) {
  // One bit per CPU, up to 8192. A kernel with more refuses, and we take its CPUs to be enough.
  std::array<unsigned long, 8192 / (8 * sizeof(unsigned long))> mask{};
  if (sched_getaffinity(0, sizeof(mask), reinterpret_cast<cpu_set_t*>(mask.data())) < 0) mask.fill(~0UL);

  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  int num_ranks = 0;
  check(MPI_Comm_size(node, &num_ranks), "MPI_Comm_size");
  check(MPI_Allreduce(MPI_IN_PLACE, mask.data(), static_cast<int>(mask.size()), MPI_UNSIGNED_LONG, MPI_BOR,
                      node),
        "MPI_Allreduce");
  check(MPI_Comm_free(&node), "MPI_Comm_free");

  std::size_t num_cpus = 0;
  for (const unsigned long word : mask) num_cpus += std::bitset<8 * sizeof(word)>(word).count();
  return static_cast<std::size_t>(num_ranks) > num_cpus;
}

}  // namespace dlscale
