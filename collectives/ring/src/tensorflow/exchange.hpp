// A step's exchange of gradients: in one call, or bucket by bucket, by threads where there are some.
//
// Vocabulary: a *bucket* is some of a step's pieces, numbered from 0; a *team* is a collective of its own,
// with its staging and, if asked for, a thread. Bucket b belongs to team b mod T, which exchanges its buckets
// strictly by number, whatever order they arrive in: the same on all ranks, or they would wait for each other
// for ever.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pieces.hpp"

namespace dlscale {

struct Team {
  const DlscaleCollective* collective;
  Staging staging;
};

// All errors are std::runtime_error. After one out of a collective the exchange refuses to go on: ranks may
// be out of step.
class Exchange {
 public:
  // What keeps the memory of a bucket's pieces, for whoever waits for them.
  using Keeper = std::shared_ptr<void>;

  // The collectives and the memory of the stagings must outlive the exchange.
  Exchange(std::vector<Team> teams, bool threads);
  ~Exchange() { close(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Returns when every piece holds the mean over ranks; by the first team, in line.
  void average(const std::vector<Piece>& pieces);

  // Hands one of the step's `num_buckets` buckets over. Its memory belongs to the exchange until the `wait`
  // for it returns.
  void send(std::size_t bucket, std::size_t num_buckets, std::vector<Piece> pieces,
            std::vector<Keeper> keepers);

  // Returns when all buckets of the step are exchanged, with their keepers in the order of buckets. The step
  // is over.
  std::vector<Keeper> wait();

  // Returns when nothing is under way; the step goes on.
  void synchronize();

  // What went wrong; empty if nothing did.
  std::string error();

  // Ends the threads when they have exchanged what was sent. A second call does nothing.
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Sent {
    std::vector<Piece> pieces;
    std::vector<Keeper> keepers;
  };

  void refuse_if_broken() const;
  void run(std::size_t team);
  void end_step();
  // Exchanges them and returns what went wrong; empty if nothing did.
  std::string attempt(std::size_t bucket, const std::vector<Piece>& pieces) const;

  const std::vector<Team> teams_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
  std::map<std::size_t, Sent> sent_;  // of the step under way
  std::vector<std::size_t> next_;     // bucket, per team
  std::size_t num_buckets_ = 0;       // of the step under way; 0 between steps
  std::size_t num_done_ = 0;          // buckets
  bool closed_ = false;
  std::string error_;
};

}  // namespace dlscale
