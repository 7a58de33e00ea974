// Every operation of an exchange over MPI.
//
//   mpiexec -n P mpi_ranks           all operations, then two exchanges at once, then unequal lengths
//   mpiexec -n P mpi_ranks large     more than 2^31 elements and bytes
//
// Rank 0 prints "ok" if all is well on all ranks; otherwise the launch is aborted.
#include <mpi.h>
#include <sched.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "network/mpi_transport.hpp"
#include "operations.hpp"

using namespace dlscale::network;

namespace {

// Ranks may outnumber cores.
const auto kBetween = [] { sched_yield(); };

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

void everything(MPI_Comm comm) {
  MpiTransport transport(comm);
  const std::size_t size = transport.group().size;
  Exchange exchange(transport, default_tuning(size));
  Checks checks(exchange, transport.group(), kBetween);
  for (const Way& way : every_way(size)) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, size - 1, size, size + 1, std::size_t{5003}}) {
      checks.all(way, count);
    }
  }
  // By the default's own choices, through all of them.
  for (const std::size_t count : {100, 10'000, 100'000, 1'000'000}) checks.all(every_way(size)[0], count);
}

// On one communicator, told apart by their tags, and progressed in a different order on every rank.
void two_at_once(MPI_Comm comm) {
  MpiTransport one(comm, 11), two(comm, 12);
  const std::size_t size = one.group().size;
  Exchange first(one, default_tuning(size)), second(two, default_tuning(size));
  std::vector<float> ones(300'000, 1), twos(200'000, 2);
  const Arithmetic sum = arithmetic(dlscale::Type::float32, dlscale::Op::sum);
  first.start_allreduce(reinterpret_cast<std::byte*>(ones.data()), ones.size(), sum);
  second.start_allreduce(reinterpret_cast<std::byte*>(twos.data()), twos.size(), sum);
  for (Exchange* each : {one.group().rank % 2 ? &second : &first, one.group().rank % 2 ? &first : &second}) {
    while (!each->done()) {
      if (!first.progress() && !second.progress()) kBetween();
    }
  }
  require(ones == std::vector<float>(ones.size(), static_cast<float>(size)), "the first of two exchanges");
  require(twos == std::vector<float>(twos.size(), static_cast<float>(2 * size)),
          "the second of two exchanges");
}

void unequal_lengths(MPI_Comm comm) {
  MpiTransport transport(comm);
  const Group group = transport.group();
  if (group.size == 1) return;
  Exchange exchange(transport, default_tuning(group.size));
  std::vector<float> values(100 * (group.rank + 1), 1);
  std::string said;
  try {
    exchange.start_allreduce(reinterpret_cast<std::byte*>(values.data()), values.size(),
                             arithmetic(dlscale::Type::float32, dlscale::Op::sum));
    finish(exchange, kBetween);
  } catch (const std::runtime_error& error) {
    said = error.what();
  }
  // A message too short is found by the exchange, one too long by MPI, and the others are told.
  bool known = false;
  for (const char* words : {"were expected", "MPI_Test", "aborted this operation"}) {
    known |= said.find(words) != std::string::npos;
  }
  require(known, ("unequal lengths gave: " + said).c_str());
  MPI_Barrier(MPI_COMM_WORLD);
}

void large(MPI_Comm comm) {
  MpiTransport transport(comm);
  const std::size_t rank = transport.group().rank, size = transport.group().size;
  Exchange exchange(transport, default_tuning(size));
  std::vector<unsigned char> bytes((std::size_t{1} << 31) + 12345);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>((i >> 8) + i + rank);
  const Arithmetic sum = {
      1, [](void* into, const void* const* sources, std::size_t num_sources, std::size_t count, bool) {
        auto* sums = static_cast<unsigned char*>(into);
        for (std::size_t i = 0; i < count; ++i) {
          unsigned char sum = 0;
          for (std::size_t s = 0; s < num_sources; ++s) {
            sum = static_cast<unsigned char>(sum + static_cast<const unsigned char*>(sources[s])[i]);
          }
          sums[i] = sum;
        }
      }};
  exchange.start_allreduce(reinterpret_cast<std::byte*>(bytes.data()), bytes.size(), sum);
  finish(exchange, kBetween);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t expected = ((i >> 8) + i) * size + size * (size - 1) / 2;
    require(bytes[i] == static_cast<unsigned char>(expected), "sum of more than 2^31 elements");
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  try {
    if (argc > 1 && std::string(argv[1]) == "large") {
      large(comm);
    } else {
      everything(comm);
      two_at_once(comm);
      unequal_lengths(comm);  // last: its messages may lie about in `comm`
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::puts("ok");
  MPI_Finalize();
}
