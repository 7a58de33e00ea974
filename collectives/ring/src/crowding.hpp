// How to wait: spinning is fastest while every rank has a CPU, and fatal when ranks share one.
#pragma once

#include <mpi.h>
#include <sched.h>

namespace dlscale {

// True if this node's ranks outnumber the CPUs that they may run on, taken together. Collective.
//
// Each rank's own affinity mask says little (a pinned rank sees one CPU however many there are), hence the
// union over the ranks of the node. CPU quotas of containers and ranks that were pinned to the same CPU
// beside free ones are not seen; `Patience` copes with them, only somewhat later.
bool ranks_outnumber_cpus(MPI_Comm comm);

// Between two polls of MPI that found nothing. Gives the CPU away at once where ranks outnumber CPUs, and
// after a short spin elsewhere: whoever shares this CPU unforeseen (threads of the frameworks, say) gets it.
class Patience {
 public:
  explicit Patience(bool crowded) : num_spins_(crowded ? 0 : 1000) {}

  void found_something() { num_idle_ = 0; }
  void found_nothing() {
    if (num_idle_ < num_spins_) {
      ++num_idle_;
    } else {
      sched_yield();
    }
  }

 private:
  int num_spins_;
  int num_idle_ = 0;
};

}  // namespace dlscale
