#include "exchange.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace dlscale {
namespace {

constexpr std::chrono::seconds kPatience{300};  // for a bucket of a step that has begun

std::size_t width(DlscaleType type) {
  if (type == kDlscaleBfloat16 || type == kDlscaleFloat16) return 2;
  return type == kDlscaleFloat32 || type == kDlscaleInt32 ? 4 : 8;
}

class Packer {
 public:
  explicit Packer(const Team& team) : team_(team) {}

  void add(const Piece& piece) {
    if (used_ && piece.type != type_) flush();
    type_ = piece.type;
    for (std::size_t done = 0; done < piece.num_bytes;) {
      const std::size_t part = std::min(piece.num_bytes - done, team_.staging_bytes - used_);
      std::memcpy(team_.staging + used_, piece.source + done, part);
      parts_.push_back({piece.target + done, part});
      used_ += part;
      done += part;
      if (used_ == team_.staging_bytes) flush();
    }
  }

  void flush() {
    if (!used_) return;
    const DlscaleCollective& collective = *team_.collective;
    if (collective.allreduce(collective.context, team_.staging, used_ / width(type_), type_,
                             kDlscaleAverage)) {
      throw std::runtime_error(collective.last_error(collective.context));
    }
    const std::byte* from = team_.staging;
    for (const Part& part : parts_) {
      std::memcpy(part.target, from, part.num_bytes);
      from += part.num_bytes;
    }
    parts_.clear();
    used_ = 0;
  }

 private:
  struct Part {
    std::byte* target;
    std::size_t num_bytes;
  };

  const Team& team_;
  std::size_t used_ = 0;
  DlscaleType type_ = kDlscaleFloat32;
  std::vector<Part> parts_;
};

}  // namespace

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
  const auto all_sent = [this] { return is_over() || (num_buckets_ && sent_.size() == num_buckets_); };
  if (!changed_.wait_for(lock, kPatience, all_sent)) {
    throw std::runtime_error("only " + std::to_string(sent_.size()) + " of " + std::to_string(num_buckets_) +
                             " buckets were sent: an earlier step broke off");
  }
  changed_.wait(lock, [this] { return is_over() || num_done_ == num_buckets_; });
  refuse_if_broken();
  std::vector<Keeper> kept;
  for (auto& [bucket, sent] : sent_) kept.insert(kept.end(), sent.keepers.begin(), sent.keepers.end());
  end_step();
  return kept;
}

void Exchange::synchronize() {
  Lock lock(mutex_);
  changed_.wait(lock, [this] { return is_over() || num_done_ == sent_.size(); });
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
    changed_.wait(lock, [&] { return is_over() || has_turn(); });
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
  try {
    Packer packer(teams_[bucket % teams_.size()]);
    for (const Piece& piece : pieces) packer.add(piece);
    packer.flush();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace dlscale
