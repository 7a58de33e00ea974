// A step's exchange of gradients: in one call, or bucket by bucket, by threads where there are some.
//
// Vocabulary: a *bucket* is some of a step's pieces, numbered from 0, and goes in one or several *parts*; a
// *team* is a collective of its own, with its staging and, if asked for, a thread. Bucket b belongs to team b
// mod T, which exchanges its parts strictly by number, or as planned, whatever order they arrive in: the same
// on all ranks, or they would wait for each other for ever.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pieces.hpp"

namespace dlscale {

struct Team {
  const DlscaleCollective* collective;
  Staging staging;
};

// A part's turn, and what was seen of it.
struct Turn {
  std::size_t bucket, part;
};
struct Seen {
  double ready = 0;    // when the bucket was sent in the last step, in seconds of a clock of this process
  double seconds = 0;  // that the exchange took, the shortest so far
};

// All errors are std::runtime_error. After one out of a collective the exchange refuses to go on: ranks may
// be out of step.
class Exchange {
 public:
  // What keeps the memory of a bucket's pieces, for whoever waits for them.
  using Keeper = std::shared_ptr<void>;

  // The collectives and the memory of the stagings must outlive the exchange. Parts have at most
  // `part_bytes`, a multiple of 8; 0: a bucket is one part.
  Exchange(std::vector<Team> teams, bool threads, std::size_t part_bytes = 0);
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

  // The same for one bucket; the step is over when all have been waited for.
  std::vector<Keeper> wait(std::size_t bucket);

  // Returns when nothing is under way; the step goes on.
  void synchronize();

  // All parts of a step with what was seen of them, by bucket and part; none before the first step.
  std::vector<std::pair<Turn, Seen>> seen();

  // From now on, between two steps, parts go in the order of `turns`, each of a step's exactly once; threads
  // only.
  void plan(const std::vector<Turn>& turns);

  // What went wrong; empty if nothing did.
  std::string error();

  // Ends the threads when they have exchanged what was sent. A second call does nothing.
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Parts = std::vector<std::vector<Piece>>;

  struct Sent {
    Parts parts;
    std::size_t num_left;  // parts that are not exchanged
    std::vector<Keeper> keepers;
    bool waited_for = false;
  };

  void refuse_if_broken() const;
  void run(std::size_t team);
  bool has_turn(std::size_t team) const;
  void advance(std::size_t team);
  void end_step();
  // Exchanges them and returns what went wrong; empty if nothing did.
  std::string attempt(std::size_t team, Turn turn, const std::vector<Piece>& pieces) const;

  const std::vector<Team> teams_;
  const std::size_t part_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
  std::map<std::size_t, Sent> sent_;      // of the step under way
  std::vector<std::vector<Turn>> plans_;  // per team; none: by number
  std::vector<std::size_t> position_;     // per team, in its plan
  std::vector<Turn> next_;                // per team
  std::map<std::pair<std::size_t, std::size_t>, Seen> seen_;
  std::size_t num_buckets_ = 0;  // of the step under way; 0 between steps
  std::size_t num_done_ = 0;     // buckets
  std::size_t num_waited_ = 0;
  bool closed_ = false;
  std::string error_;
};

}  // namespace dlscale
