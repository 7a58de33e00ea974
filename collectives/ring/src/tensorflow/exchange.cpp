#include "exchange.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <utility>

namespace dlscale {
namespace {

constexpr std::size_t kNoBucket = std::numeric_limits<std::size_t>::max();

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Exchange::Exchange(std::vector<Team> teams, bool threads, std::size_t part_bytes)
    : teams_(std::move(teams)), part_bytes_(part_bytes), position_(teams_.size()), next_(teams_.size()) {
  end_step();
  if (!threads) return;
  for (std::size_t team = 0; team < teams_.size(); ++team) threads_.emplace_back([this, team] { run(team); });
}

void Exchange::average(const std::vector<Piece>& pieces) {
  const Lock lock(mutex_);
  refuse_if_broken();
  if (num_buckets_) throw std::runtime_error("gradients are averaged while buckets of a step are under way");
  error_ = attempt(0, {0, 0}, pieces);
  refuse_if_broken();
}

void Exchange::send(std::size_t bucket, std::size_t num_buckets, std::vector<Piece> pieces,
                    std::vector<Keeper> keepers) {
  const Lock lock(mutex_);
  refuse_if_broken();
  const std::size_t team = bucket % teams_.size();
  const bool in_turn = !sent_.count(bucket) && (!threads_.empty() || bucket == num_done_);
  if (!in_turn || (num_buckets_ && num_buckets != num_buckets_)) {
    throw std::runtime_error("bucket " + std::to_string(bucket) + " of " + std::to_string(num_buckets) +
                             " came out of turn: an earlier step broke off, or two steps run at once");
  }
  num_buckets_ = num_buckets;
  Parts parts = threads_.empty() ? Parts{std::move(pieces)} : cut(pieces, part_bytes_);
  const double now = seconds_now();
  for (std::size_t part = 0; part < parts.size(); ++part) {
    Seen& seen =
        seen_.try_emplace({bucket, part}, Seen{0, std::numeric_limits<double>::infinity()}).first->second;
    seen.ready = now;
  }
  Sent& sent = sent_[bucket];
  sent = {std::move(parts), 0, std::move(keepers)};
  sent.num_left = sent.parts.size();
  if (threads_.empty()) {
    error_ = attempt(team, {bucket, 0}, sent.parts[0]);
    sent.num_left = 0;
    ++num_done_;
    refuse_if_broken();
  } else {
    changed_.notify_all();
  }
}

std::vector<Exchange::Keeper> Exchange::wait() {
  Lock lock(mutex_);
  changed_.wait(lock,
                [this] { return closed_ || !error_.empty() || (num_buckets_ && num_done_ == num_buckets_); });
  refuse_if_broken();
  std::vector<Keeper> kept;
  for (auto& [bucket, sent] : sent_) kept.insert(kept.end(), sent.keepers.begin(), sent.keepers.end());
  end_step();
  return kept;
}

std::vector<Exchange::Keeper> Exchange::wait(std::size_t bucket) {
  Lock lock(mutex_);
  const auto is_done = [&] {
    const auto found = sent_.find(bucket);
    return found != sent_.end() && !found->second.num_left && !found->second.waited_for;
  };
  changed_.wait(lock, [&] { return closed_ || !error_.empty() || is_done(); });
  refuse_if_broken();
  Sent& sent = sent_.at(bucket);
  sent.waited_for = true;
  std::vector<Keeper> kept = std::move(sent.keepers);
  if (++num_waited_ == num_buckets_) end_step();
  return kept;
}

void Exchange::synchronize() {
  Lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !error_.empty() || num_done_ == num_buckets_; });
  refuse_if_broken();
}

std::vector<std::pair<Turn, Seen>> Exchange::seen() {
  const Lock lock(mutex_);
  std::vector<std::pair<Turn, Seen>> all;
  for (const auto& [turn, seen] : seen_) all.push_back({{turn.first, turn.second}, seen});
  return all;
}

void Exchange::plan(const std::vector<Turn>& turns) {
  const Lock lock(mutex_);
  refuse_if_broken();
  if (threads_.empty()) throw std::runtime_error("an order was planned, but no threads exchange");
  if (num_buckets_) throw std::runtime_error("an order was planned while buckets of a step are under way");
  std::map<std::pair<std::size_t, std::size_t>, int> times;
  for (const Turn& turn : turns) ++times[{turn.bucket, turn.part}];
  bool each_once = times.size() == seen_.size();
  for (const auto& [turn, count] : times) each_once = each_once && count == 1 && seen_.count(turn);
  if (!each_once) throw std::runtime_error("a planned order must have each part of a step once");
  plans_.assign(teams_.size(), {});
  for (const Turn& turn : turns) plans_[turn.bucket % teams_.size()].push_back(turn);
  end_step();
}

std::string Exchange::error() {
  const Lock lock(mutex_);
  return error_;
}

void Exchange::close() {
  {
    const Lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Exchange::refuse_if_broken() const {
  if (!error_.empty()) throw std::runtime_error(error_);
  if (closed_) throw std::runtime_error("the exchange of gradients is closed");
}

void Exchange::end_step() {
  num_buckets_ = num_done_ = num_waited_ = 0;
  sent_.clear();
  for (std::size_t team = 0; team < teams_.size(); ++team) {
    position_[team] = 0;
    next_[team] = {team, 0};
    if (!plans_.empty()) next_[team] = plans_[team].empty() ? Turn{kNoBucket, 0} : plans_[team][0];
  }
}

bool Exchange::has_turn(std::size_t team) const { return sent_.count(next_[team].bucket); }

void Exchange::advance(std::size_t team) {
  Turn& next = next_[team];
  if (plans_.empty()) {
    const bool last = next.part + 1 == sent_.at(next.bucket).parts.size();
    next = last ? Turn{next.bucket + teams_.size(), 0} : Turn{next.bucket, next.part + 1};
  } else {
    const std::size_t position = ++position_[team];
    next = position < plans_[team].size() ? plans_[team][position] : Turn{kNoBucket, 0};
  }
}

void Exchange::run(std::size_t team) {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !error_.empty() || has_turn(team); });
    // What was sent is exchanged, also when it is closed: other ranks may be waiting for it.
    if (!error_.empty() || !has_turn(team)) return;
    const Turn turn = next_[team];
    const std::vector<Piece> pieces = std::move(sent_.at(turn.bucket).parts[turn.part]);
    advance(team);
    lock.unlock();
    const double begin = seconds_now();
    const std::string error = attempt(team, turn, pieces);
    const double seconds = seconds_now() - begin;
    lock.lock();
    if (error_.empty()) error_ = error;
    Seen& seen = seen_.at({turn.bucket, turn.part});
    seen.seconds = std::min(seen.seconds, seconds);
    if (!--sent_.at(turn.bucket).num_left) ++num_done_;
    changed_.notify_all();
  }
}

std::string Exchange::attempt(std::size_t team, Turn turn, const std::vector<Piece>& pieces) const {
  try {
    const std::size_t first = turn.bucket << 20 | turn.part << 10;
    dlscale::average(*teams_[team].collective, teams_[team].staging, pieces, first);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace dlscale
