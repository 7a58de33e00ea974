#include "exchange.hpp"

#include <stdexcept>
#include <utility>

namespace dlscale {

Exchange::Exchange(std::vector<Team> teams, bool threads) : teams_(std::move(teams)), next_(teams_.size()) {
  end_step();
  if (!threads) return;
  for (std::size_t team = 0; team < teams_.size(); ++team) threads_.emplace_back([this, team] { run(team); });
}

void Exchange::average(const std::vector<Piece>& pieces) {
  const Lock lock(mutex_);
  refuse_if_broken();
  if (num_buckets_) throw std::runtime_error("gradients are averaged while buckets of a step are under way");
  error_ = attempt(0, pieces);
  refuse_if_broken();
}

void Exchange::send(std::size_t bucket, std::size_t num_buckets, std::vector<Piece> pieces,
                    std::vector<Keeper> keepers) {
  const Lock lock(mutex_);
  refuse_if_broken();
  const bool in_turn = !sent_.count(bucket) && (!threads_.empty() || bucket == num_done_);
  if (!in_turn || (num_buckets_ && num_buckets != num_buckets_)) {
    throw std::runtime_error("bucket " + std::to_string(bucket) + " of " + std::to_string(num_buckets) +
                             " came out of turn: an earlier step broke off, or two steps run at once");
  }
  num_buckets_ = num_buckets;
  Sent& sent = sent_[bucket];
  sent = {std::move(pieces), std::move(keepers)};
  if (threads_.empty()) {
    error_ = attempt(bucket, sent.pieces);
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

void Exchange::end_step() {
  num_buckets_ = num_done_ = 0;
  sent_.clear();
  for (std::size_t team = 0; team < teams_.size(); ++team) next_[team] = team;
}

void Exchange::run(std::size_t team) {
  Lock lock(mutex_);
  for (;;) {
    const auto has_turn = [&] { return sent_.count(next_[team]) > 0; };
    changed_.wait(lock, [&] { return closed_ || !error_.empty() || has_turn(); });
    // What was sent is exchanged, also when it is closed: other ranks may be waiting for it.
    if (!error_.empty() || !has_turn()) return;
    const std::size_t bucket = next_[team];
    const std::vector<Piece> pieces = std::move(sent_.at(bucket).pieces);
    next_[team] += teams_.size();
    lock.unlock();
    const std::string error = attempt(bucket, pieces);
    lock.lock();
    if (error_.empty()) error_ = error;
    ++num_done_;
    changed_.notify_all();
  }
}

std::string Exchange::attempt(std::size_t bucket, const std::vector<Piece>& pieces) const {
  const Team& team = teams_[bucket % teams_.size()];
  try {
    dlscale::average(*team.collective, team.staging, pieces);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace dlscale
