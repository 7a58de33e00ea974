#include "exchange.hpp"

#include <numeric>
#include <stdexcept>
#include <utility>

namespace dlscale {

Exchange::Exchange(std::vector<Team> teams, bool threads) : teams_(std::move(teams)), next_(teams_.size()) {
  std::iota(next_.begin(), next_.end(), std::size_t{0});
  if (!threads) return;
  for (std::size_t team = 0; team < teams_.size(); ++team) threads_.emplace_back([this, team] { run(team); });
}

void Exchange::average(const std::vector<Piece>& pieces) {
  const Lock lock(mutex_);
  refuse_if_broken();
  if (num_buckets_) throw std::runtime_error("gradients are averaged while buckets of a step are under way");
  error_ = attempt(0, 0, pieces);
  refuse_if_broken();
}

void Exchange::send(std::size_t bucket, std::size_t num_buckets, std::vector<Piece> pieces,
                    std::vector<Keeper> keepers) {
  const Lock lock(mutex_);
  refuse_if_broken();
  const std::size_t team = bucket % teams_.size();
  const bool in_turn =
      threads_.empty() ? bucket == num_done_ : bucket >= next_[team] && !arrived_.count(bucket);
  if (!in_turn || (num_buckets_ && num_buckets != num_buckets_)) {
    throw std::runtime_error("bucket " + std::to_string(bucket) + " of " + std::to_string(num_buckets) +
                             " came out of turn: an earlier step broke off, or two steps run at once");
  }
  num_buckets_ = num_buckets;
  keepers_.emplace(bucket, std::move(keepers));
  if (threads_.empty()) {
    error_ = attempt(team, bucket, pieces);
    ++num_done_;
    refuse_if_broken();
  } else {
    arrived_.emplace(bucket, std::move(pieces));
    changed_.notify_all();
  }
}

std::vector<Exchange::Keeper> Exchange::wait() {
  Lock lock(mutex_);
  changed_.wait(lock,
                [this] { return closed_ || !error_.empty() || (num_buckets_ && num_done_ == num_buckets_); });
  refuse_if_broken();
  num_buckets_ = num_done_ = 0;
  std::iota(next_.begin(), next_.end(), std::size_t{0});
  std::vector<Keeper> kept;
  for (auto& [bucket, keepers] : keepers_) kept.insert(kept.end(), keepers.begin(), keepers.end());
  keepers_.clear();
  return kept;
}

void Exchange::synchronize() {
  Lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !error_.empty() || num_done_ == num_buckets_; });
  refuse_if_broken();
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

void Exchange::run(std::size_t team) {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !error_.empty() || arrived_.count(next_[team]); });
    // What was sent is exchanged, also when it is closed: other ranks may be waiting for it.
    if (!error_.empty() || !arrived_.count(next_[team])) return;
    const std::size_t bucket = next_[team];
    const std::vector<Piece> pieces = std::move(arrived_.extract(bucket).mapped());
    next_[team] += teams_.size();
    lock.unlock();
    const std::string error = attempt(team, bucket, pieces);
    lock.lock();
    if (error_.empty()) error_ = error;
    ++num_done_;
    changed_.notify_all();
  }
}

std::string Exchange::attempt(std::size_t team, std::size_t bucket, const std::vector<Piece>& pieces) const {
  try {
    dlscale::average(*teams_[team].collective, teams_[team].staging, pieces, bucket << 20);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace dlscale
