// Timing operations in turn, in lockstep, all ranks by the same decisions.
//
// Three modes say what a call finds in the caches:
//   hot    the same memory in every call, which nobody else touches: what most benchmarks measure;
//   fresh  the same memory, which every rank writes just before, as a backward pass writes gradients;
//   cold   other memory in every call, longer ago in use than the caches remember.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "arena.hpp"
#include "lockstep.hpp"
#include "operation.hpp"
#include "options.hpp"
#include "spool.hpp"

namespace bench {

// An operation and the memory that it is timed on.
struct Contestant {
  std::string name;
  std::unique_ptr<Operation> operation;
  Arena* arena;
  double spent = 0;  // seconds so far
};

class Measurement {
 public:
  Measurement(const Options& options, MPI_Comm comm, Lockstep& lockstep, Spool& spool);

  // Warms every contestant up, then times blocks of calls of each in turn, round after round, so that what
  // drifts meets all of them. Collective.
  // Once a contestant took much more than its share of the time, its sizes are skipped and noted as failures:
  // one that collapses takes nothing away from the others.
  void size(const std::string& mode, std::size_t message_bytes, std::vector<Contestant>& contestants);

 private:
  struct Plan {
    int calls_per_round = 0;
    int num_warmup = 0;
  };

  struct Call {
    double start;
    double seconds;
  };

  Plan warm_up(Contestant& contestant, const Cell& cell);
  Call time_call(Contestant& contestant, const Cell& cell);
  void time_block(Contestant& contestant, const Cell& cell, int round, const Plan& plan);
  void start_line();
  // One call, and once for all ranks whether it did what it should: empty, or what went wrong.
  std::string verify(Contestant& contestant, const Cell& cell);
  bool out_of_time(const Contestant& contestant);
  template <typename Work>
  void charge(Contestant& contestant, Work work);

  const Options& options_;
  MPI_Comm comm_;
  Lockstep& lockstep_;
  Spool& spool_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace bench
