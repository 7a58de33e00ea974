// Waiting for other nodes: what progresses meanwhile, and how a rank learns why nothing arrives.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "hierarchy.hpp"

namespace dlscale {
namespace {

// By the clock: a look at MPI can take as long as a message. Whoever looks on keeps the core from a rank of
// another host that is emulated here, or from the program's own threads.
constexpr double kSpinSeconds = 10e-6;
// Nothing came for longer than a segment takes on a fast network: what is waited for is a rank that computes,
// or a slow link that is busy. Threads that only yield would be in the way of what computes here.
constexpr double kYieldSeconds = 200e-6;
constexpr unsigned kNapMicroseconds = 50;
constexpr double kLookSeconds = 10e-3;
constexpr double kGraceSeconds = 0.2;
constexpr double kReportSeconds = 1;  // by then ranks that can see a dead rank have reported it

}  // namespace

void Hierarchy::over_network(const std::function<void(network::Exchange&)>& start) {
  start(*exchange_);
  finish_network();
}

void Hierarchy::finish_network() {
  Waiting& waiting = node_.waiting();
  ++num_exchanges_;
  bool idle_before = false;
  double idle_since = 0, next_look = 0;
  Patience patience(0);
  bool reported = false;
  waiting.set_waiting_for_other_nodes(true);
  while (!exchange_->done()) {
    if (progress_network()) {
      idle_before = false;
      continue;
    }
    const double now = monotonic_seconds();
    if (!idle_before) {
      idle_before = true;
      idle_since = now;
      patience = Patience(now);
      next_look = now + kLookSeconds;
      reported = false;
    }
    if (now > idle_since + kYieldSeconds) {
      usleep(kNapMicroseconds);
    } else if (waiting.oversubscribed() || now > idle_since + kSpinSeconds) {
      sched_yield();
    }
    if (now < next_look) continue;
    next_look = now + kLookSeconds;
    waiting.check_others();
    raise_reported();
    const double idle = patience.look(now);
    if (!reported && idle > waiting.timeout_seconds() / 2) {
      errors_.send_waiting(num_exchanges_, awaited_rank());
      reported = true;
    }
    // A little later than inside a node, which knows better why its rank is silent and reports it.
    if (idle > 1.1 * waiting.timeout_seconds() + kGraceSeconds) raise_silent(waiting.timeout_seconds());
  }
  waiting.set_waiting_for_other_nodes(false);
}

bool Hierarchy::progress_network() {
  try {
    return exchange_->progress();
  } catch (const network::PartnerFailure& failure) {
    raise_cause_of(failure);
  }
}

// The failure that a rank sees is often the consequence of one that another rank knows better and reports.
void Hierarchy::raise_cause_of(const network::PartnerFailure& failure) {
  using Cause = network::PartnerFailure::Cause;
  // A rank that aborted has itself waited for reports before.
  const double patience = failure.cause == Cause::differing ? 0
                          : failure.cause == Cause::broken  ? kReportSeconds
                                                            : 2 * kReportSeconds;
  try {
    for (const double end = monotonic_seconds() + patience; monotonic_seconds() < end; sched_yield()) {
      node_.waiting().check_others();
      raise_reported();
    }
  } catch (const RankFailure&) {
    throw;
  } catch (const std::runtime_error&) {
    // MPI can deliver no more reports.
  }
  throw RankFailure("rank " + std::to_string(rank_on_lane(failure.peer)) + ", on another node," +
                    failure.reason);
}

int Hierarchy::rank_on_lane(int node) const {
  return topology_
      .ranks_of_node[static_cast<std::size_t>(node)][static_cast<std::size_t>(topology_.local_rank)];
}

int Hierarchy::awaited_rank() const { return rank_on_lane(std::max(exchange_->waiting_for(), 0)); }

void Hierarchy::raise_silent(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", seconds);
  throw RankFailure(
      "rank " + std::to_string(errors_.end_of_chain(num_exchanges_, awaited_rank())) +
      ", on another node, was silent for " + text +
      " s: it is late, or dead with all of its node; does every rank call the same operations? A "
      "longer wait: timeout_seconds");
}

// What ranks of other nodes have reported, if anything, as a failure of this one's.
void Hierarchy::raise_reported() {
  if (topology_.num_nodes == 1) return;
  const std::string reported = errors_.poll();
  if (!reported.empty()) throw RankFailure(reported);
}

// Where the failure is another rank's, the text names it already.
void Hierarchy::propagate(const std::exception& error) {
  const bool of_another = dynamic_cast<const RankFailure*>(&error) != nullptr;
  const std::string text =
      of_another ? error.what()
                 : "rank " + std::to_string(topology_.rank) + " failed and left the ring: " + error.what();
  node_.waiting().note_own_failure(text);
  if (topology_.num_nodes > 1) errors_.send_failure(text);
}

}  // namespace dlscale
