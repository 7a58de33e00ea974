// Waiting for other nodes: what moves meanwhile, and how a rank learns why nothing comes.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "hierarchy.hpp"

namespace dlscale {
namespace {

constexpr int kSpins = 2000;
constexpr double kLookSeconds = 10e-3;
constexpr double kGraceSeconds = 0.2;
constexpr double kNewsSeconds = 1;  // ranks that can look at a dead one have told of it by then

}  // namespace

// Ranks on no lane have nothing to start and nothing to wait for.
void Hierarchy::over_network(const std::function<void(network::Exchange&)>& start) {
  if (!exchange_) return;
  start(*exchange_);
  finish_network();
}

void Hierarchy::finish_network() {
  if (!exchange_) return;
  Waiting& waiting = node_.waiting();
  ++num_exchanges_;
  int num_idle = 0;
  Patience patience(0);
  double next_look = 0;
  bool told = false;
  waiting.set_waiting_for_other_nodes(true);
  while (!exchange_->done()) {
    if (progress_network()) {
      num_idle = 0;
      continue;
    }
    if (!waiting.crowded() && ++num_idle < kSpins) continue;
    const double now = monotonic_seconds();
    if (num_idle <= kSpins) {
      num_idle = kSpins + 1;
      patience = Patience(now);
      next_look = now + kLookSeconds;
      told = false;
    }
    sched_yield();
    if (now < next_look) continue;
    next_look = now + kLookSeconds;
    waiting.check_others();
    const std::string& failure = notices_.look();
    if (!failure.empty()) throw RankFailure(failure);
    const double idle = patience.look(now);
    if (!told && idle > waiting.timeout_seconds() / 2) {
      notices_.tell_waiting(num_exchanges_, missed_rank());
      told = true;
    }
    // A little later than inside a node, which knows better why its rank is silent and tells the others.
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

// What a rank meets is often the consequence of what another one knows better, and tells of.
void Hierarchy::raise_cause_of(const network::PartnerFailure& failure) {
  using Cause = network::PartnerFailure::Cause;
  // Who gave up waited for news himself, as long as that took.
  const double patience = failure.cause == Cause::differing ? 0
                          : failure.cause == Cause::broken  ? kNewsSeconds
                                                            : 2 * kNewsSeconds;
  try {
    for (const double end = monotonic_seconds() + patience; monotonic_seconds() < end; sched_yield()) {
      node_.waiting().check_others();
      const std::string& told = notices_.look();
      if (!told.empty()) throw RankFailure(told);
    }
  } catch (const RankFailure&) {
    throw;
  } catch (const std::runtime_error&) {
    // MPI cannot bring news any more.
  }
  throw RankFailure("rank " + std::to_string(rank_on_lane(failure.peer)) + ", on another node," +
                    failure.said);
}

int Hierarchy::rank_on_lane(int node) const {
  return topology_
      .ranks_of_node[static_cast<std::size_t>(node)][static_cast<std::size_t>(topology_.local_rank)];
}

int Hierarchy::missed_rank() const { return rank_on_lane(std::max(exchange_->waiting_for(), 0)); }

void Hierarchy::raise_silent(double seconds) const {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", seconds);
  throw RankFailure(
      "rank " + std::to_string(notices_.end_of_chain(num_exchanges_, missed_rank())) +
      ", on another node, was silent for " + text +
      " s: it is late, or dead with all of its node; does every rank call the same operations? A "
      "longer wait: timeout_seconds");
}

// Where the failure is another rank's, the text names it already.
void Hierarchy::tell_others(const std::exception& error) {
  const bool of_another = dynamic_cast<const RankFailure*>(&error) != nullptr;
  const std::string text =
      of_another ? error.what()
                 : "rank " + std::to_string(topology_.rank) + " failed and left the ring: " + error.what();
  node_.waiting().note_own_failure(text);
  if (topology_.num_nodes > 1) notices_.tell_failure(text);
}

}  // namespace dlscale
