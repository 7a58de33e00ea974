#include "measurement.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <optional>
#include <string>

namespace bench {
namespace {

// A slow operation may take so many times its share of the time for its warm-up, and again for its calls.
constexpr double kPatience = 4;
constexpr double kStart = 5;  // seconds

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

// Runs something of a contestant, and notes how long it took.
template <typename Work>
void Measurement::charge(Contestant& contestant, Work work) {
  const double begin = now();
  work();
  contestant.spent += now() - begin;
}

void Measurement::size(const std::string& mode, std::size_t message_bytes,
                       std::vector<Contestant>& contestants) {
  if (mode == "cold" && message_bytes >= options_.cold_bytes) return;  // then every call is: see "hot"
  std::vector<std::optional<Plan>> plans;
  for (Contestant& contestant : contestants) {
    const Cell cell{contestant.name, mode, message_bytes};
    std::string complaint = "no time was left";
    std::optional<Plan> plan;
    if (!out_of_time(contestant)) {
      charge(contestant, [&] {
        complaint = verify(contestant, cell);
        if (complaint.empty()) plan = warm_up(contestant, cell);
      });
    }
    plans.push_back(plan);
    if (!complaint.empty()) spool_.failure(cell, complaint);
  }
  const int num_rounds = options_.volume > 0 ? 1 : options_.rounds;
  for (int round = 0; round < num_rounds; ++round) {
    for (std::size_t turn = 0; turn < contestants.size(); ++turn) {
      // Every other round runs backwards: no operation always follows the same one.
      const std::size_t i = round % 2 == 0 ? turn : contestants.size() - 1 - turn;
      if (!plans[i]) continue;
      charge(contestants[i], [&] {
        time_block(contestants[i], {contestants[i].name, mode, message_bytes}, round, *plans[i]);
      });
    }
  }
}

// A dropped, doubled or misplaced part cannot cancel out: data differ by rank and index, and are exact in
// floats.
std::string Measurement::verify(Contestant& contestant, const Cell& cell) {
  float* data = contestant.arena->next(cell.mode, cell.message_bytes);
  const std::size_t count = cell.message_bytes / sizeof(float);
  auto pattern = [](std::size_t i) { return static_cast<float>(i % 1021); };
  for (std::size_t i = 0; i < count; ++i) data[i] = pattern(i) + static_cast<float>(rank_);
  std::string complaint;
  try {
    contestant.operation->run(data, count);
  } catch (const std::exception& error) {
    complaint = error.what();
  }
  const auto p = static_cast<float>(size_);
  for (std::size_t i = 0; contestant.operation->sums() && complaint.empty() && i < count; ++i) {
    if (data[i] != pattern(i) * p + p * (p - 1) / 2)
      complaint = "wrong result at element " + std::to_string(i);
  }
  std::fill_n(data, count, 1.0F);
  if (lockstep_.largest(complaint.empty() ? 0 : 1) == 0) return "";
  return complaint.empty() ? "failed on another rank" : complaint;
}

Measurement::Plan Measurement::warm_up(Contestant& contestant, const Cell& cell) {
  const std::size_t num_cells = options_.operations.size() * options_.sizes.size() * options_.modes.size();
  const double share = options_.seconds / static_cast<double>(num_cells);
  const int num_calls = options_.warmup_calls + contestant.operation->trial_calls();
  Plan plan;
  double shortest = 0;
  for (double spent = 0; plan.num_warmup < num_calls && (plan.num_warmup < 1 || spent < kPatience * share);) {
    const double seconds = lockstep_.largest(time_call(contestant, cell).seconds);
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

Measurement::Call Measurement::time_call(Contestant& contestant, const Cell& cell) {
  float* data = contestant.arena->next(cell.mode, cell.message_bytes);
  const std::size_t count = cell.message_bytes / sizeof(float);
  if (cell.mode == "fresh") std::fill_n(data, count, 1.0F);
  start_line();
  const double begin = now();
  contestant.operation->run(data, count);
  return {begin, now() - begin};
}

void Measurement::time_block(Contestant& contestant, const Cell& cell, int round, const Plan& plan) {
  const auto num_calls = static_cast<std::size_t>(plan.calls_per_round);
  std::vector<double> starts(num_calls), seconds(num_calls);
  // The first call after another operation's block does not count: it finds the other's traces in the caches.
  time_call(contestant, cell);
  for (std::size_t i = 0; i < num_calls; ++i) {
    const Call call = time_call(contestant, cell);
    starts[i] = call.start;
    seconds[i] = call.seconds;
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

// Fixed numbers of calls are made whatever they take.
bool Measurement::out_of_time(const Contestant& contestant) {
  const double share = options_.seconds / static_cast<double>(options_.operations.size());
  return options_.volume == 0 && lockstep_.largest(contestant.spent) > kPatience * share + kStart;
}

}  // namespace bench
