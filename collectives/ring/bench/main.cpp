// Times allreduce, by whatever MPI this was compiled with and by the ring, on the ranks of one node.
//
// Started by `dlscale collectives`; writes raw times of every call and rank as JSON lines.
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "arena.hpp"
#include "lockstep.hpp"
#include "measurement.hpp"
#include "operation.hpp"
#include "options.hpp"
#include "spool.hpp"

namespace bench {
namespace {

// As the launchers tell it before MPI is initialised: MPI must find the process already bound.
int local_rank() {
  for (const char* name : {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

void bind(const std::vector<int>& cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpus[static_cast<std::size_t>(local_rank()) % cpus.size()], &mask);
  if (sched_setaffinity(0, sizeof(mask), &mask) != 0)
    throw std::runtime_error("cannot bind to a CPU of --cpus");
}

std::string thread_level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "single";
    case MPI_THREAD_FUNNELED:
      return "funneled";
    case MPI_THREAD_SERIALIZED:
      return "serialized";
    default:
      return "multiple";
  }
}

std::string library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find('\n'));
}

void measure(const Options& options, const std::string& thread_level) {
  MPI_Comm comm = MPI_COMM_WORLD;
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  Spool spool(options.output, rank == 0);
  spool.launch(options, library(), thread_level, size);

  const std::size_t num_cpus = std::set<int>(options.cpus.begin(), options.cpus.end()).size();
  Lockstep lockstep(options.flags, comm, static_cast<std::size_t>(size) > num_cpus);
  spool.round_trip(lockstep.round_trip());

  const std::size_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  const bool cold = std::count(options.modes.begin(), options.modes.end(), "cold") > 0;
  const std::size_t num_bytes = Arena::needed(largest, options.cold_bytes, cold);
  Arena ordinary(num_bytes);
  std::vector<std::unique_ptr<Arena>> own;
  std::vector<Contestant> contestants;
  for (const std::string& name : options.operations) {
    try {
      auto operation = make_operation(name, comm);
      Arena* arena = &ordinary;
      if (float* memory = operation->memory(num_bytes / sizeof(float))) {
        arena = own.emplace_back(std::make_unique<Arena>(memory, num_bytes)).get();
      }
      contestants.push_back({name, std::move(operation), arena});
    } catch (const std::runtime_error& error) {
      for (const std::string& mode : options.modes) {
        for (const std::size_t message_bytes : options.sizes) {
          spool.failure({name, mode, message_bytes}, error.what());
        }
      }
    }
  }

  Measurement measurement(options, comm, lockstep, spool);
  for (const std::string& mode : options.modes) {
    for (const std::size_t message_bytes : options.sizes) {
      measurement.size(mode, message_bytes, contestants);
      spool.round_trip(lockstep.round_trip());
    }
  }
  spool.end();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  try {
    const bench::Options options = bench::parse(argc, argv);
    alarm(options.limit);  // whatever hangs: no process stays
    bench::bind(options.cpus);
    int provided = MPI_THREAD_SINGLE;
    const int required = options.thread_level == "multiple" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, required, &provided);
    try {
      bench::measure(options, bench::thread_level_name(provided));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "allreduce benchmark: %s\n", error.what());
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "allreduce benchmark: %s\n", error.what());
    return 1;
  }
  return 0;
}
