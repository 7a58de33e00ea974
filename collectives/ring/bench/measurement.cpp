#include "measurement.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <optional>

namespace bench {
namespace {

constexpr double kPatience =
    4;  // times its share of the time, a slow operation may take for its fewest calls

double now() {
  const std::chrono::duration<double> time = std::chrono::steady_clock::now().time_since_epoch();
  return time.count();
}

}  // namespace

Measurement::Measurement(const Options& options, MPI_Comm comm, Lockstep& lockstep, Spool& spool)
    : options_(options), comm_(comm), lockstep_(lockstep), spool_(spool) {
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &size_);
}

void Measurement::size(const std::string& mode, std::size_t message_bytes,
                       std::vector<Contestant>& contestants) {
  std::vector<std::optional<Plan>> plans;
  for (Contestant& contestant : contestants) {
    const Cell cell{contestant.name, mode, message_bytes};
    if (verify(contestant, cell)) {
      plans.emplace_back(warm_up(contestant, cell));
    } else {
      spool_.failure(cell, "wrong result");
      plans.emplace_back(std::nullopt);
    }
  }
  const int num_rounds = options_.volume > 0 ? 1 : options_.rounds;
  for (int round = 0; round < num_rounds; ++round) {
    for (std::size_t turn = 0; turn < contestants.size(); ++turn) {
      // Every other round runs backwards: no operation always follows the same one.
      const std::size_t i = round % 2 == 0 ? turn : contestants.size() - 1 - turn;
      if (plans[i]) time_block(contestants[i], {contestants[i].name, mode, message_bytes}, round, *plans[i]);
    }
  }
}

// A dropped, doubled or misplaced part cannot cancel out: data differ by rank and index, and are exact in
// floats.
bool Measurement::verify(Contestant& contestant, const Cell& cell) {
  float* data = contestant.arena->next(cell.mode, cell.message_bytes);
  const std::size_t count = cell.message_bytes / sizeof(float);
  auto pattern = [](std::size_t i) { return static_cast<float>(i % 1021); };
  for (std::size_t i = 0; i < count; ++i) data[i] = pattern(i) + static_cast<float>(rank_);
  contestant.operation->run(data, count);
  if (!contestant.operation->sums()) return true;
  int right = 1;
  const auto p = static_cast<float>(size_);
  for (std::size_t i = 0; i < count; ++i) {
    if (data[i] != pattern(i) * p + p * (p - 1) / 2) right = 0;
  }
  std::fill_n(data, count, 1.0F);
  int all_right = 0;
  MPI_Allreduce(&right, &all_right, 1, MPI_INT, MPI_MIN, comm_);
  return all_right == 1;
}

Measurement::Plan Measurement::warm_up(Contestant& contestant, const Cell& cell) {
  const std::size_t num_cells = options_.operations.size() * options_.sizes.size() * options_.modes.size();
  const double share = options_.seconds / static_cast<double>(num_cells);
  const int num_calls = options_.warmup_calls + contestant.operation->trial_calls();
  Plan plan;
  double shortest = 0;
  for (double spent = 0; plan.num_warmup < num_calls && (plan.num_warmup < 1 || spent < kPatience * share);) {
    start_line();
    const double begin = now();
    contestant.operation->run(contestant.arena->next(cell.mode, cell.message_bytes),
                              cell.message_bytes / sizeof(float));
    const double seconds = agreed(now() - begin);
    shortest = plan.num_warmup == 0 ? seconds : std::min(shortest, seconds);
    spent += seconds;
    ++plan.num_warmup;
  }
  if (options_.volume > 0) {
    const double calls = static_cast<double>(options_.volume) / static_cast<double>(cell.message_bytes);
    plan.calls_per_round = std::max(1, static_cast<int>(std::min<double>(calls, options_.max_calls)));
    return plan;
  }
  const double at_most = std::min<double>(options_.max_calls, kPatience * share / shortest);
  const double at_least = std::min<double>(options_.min_calls, at_most);
  const double calls = std::clamp(share / shortest, at_least, at_most);
  plan.calls_per_round = std::max(1, static_cast<int>(std::ceil(calls / options_.rounds)));
  return plan;
}

void Measurement::time_block(Contestant& contestant, const Cell& cell, int round, const Plan& plan) {
  const std::size_t count = cell.message_bytes / sizeof(float);
  const auto num_calls = static_cast<std::size_t>(plan.calls_per_round);
  std::vector<double> starts(num_calls), seconds(num_calls);
  // The first call after another operation's block is not timed: it finds the other's traces in the caches.
  start_line();
  contestant.operation->run(contestant.arena->next(cell.mode, cell.message_bytes), count);
  for (std::size_t i = 0; i < num_calls; ++i) {
    float* data = contestant.arena->next(cell.mode, cell.message_bytes);
    start_line();
    starts[i] = now();
    contestant.operation->run(data, count);
    seconds[i] = now() - starts[i];
  }
  const std::size_t num_all = rank_ == 0 ? num_calls * static_cast<std::size_t>(size_) : 0;
  std::vector<double> all_starts(num_all), all_seconds(num_all);
  const int num = static_cast<int>(num_calls);
  MPI_Gather(starts.data(), num, MPI_DOUBLE, all_starts.data(), num, MPI_DOUBLE, 0, comm_);
  MPI_Gather(seconds.data(), num, MPI_DOUBLE, all_seconds.data(), num, MPI_DOUBLE, 0, comm_);
  spool_.block(cell, round, plan.num_warmup, size_, all_seconds, all_starts);
}

void Measurement::start_line() {
  if (options_.barrier == "mpi") {
    MPI_Barrier(comm_);
  } else {
    lockstep_.wait();
  }
}

// The slowest rank's value, on all ranks.
double Measurement::agreed(double value) const {
  double largest = 0;
  MPI_Allreduce(&value, &largest, 1, MPI_DOUBLE, MPI_MAX, comm_);
  return largest;
}

}  // namespace bench
