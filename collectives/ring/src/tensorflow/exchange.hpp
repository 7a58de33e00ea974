// A step's exchange of gradients: in one call, or bucket by bucket, by threads where there are some.
//
//   piece    one gradient, read at `source` and left as the mean over ranks at `target`, often the same
//   address; staging  memory into which pieces are copied end to end until it is full, so that one call of
//   the collective
//            carries many; a piece may be cut by its end. The calls depend on sizes and types alone, never on
//            addresses, so they are the same on all ranks;
//   bucket   some of a step's pieces, numbered from 0;
//   team     a collective with its staging and, if asked for, a thread. Bucket b belongs to team b mod T,
//   which
//            exchanges its buckets strictly by number, whatever order they arrive in: the same on all ranks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../c_interface.hpp"

namespace dlscale {

struct Piece {
  const std::byte* source;
  std::byte* target;
  std::size_t num_bytes;
  DlscaleType type;
};

struct Team {
  const DlscaleCollective* collective;
  std::byte* staging;
  std::size_t staging_bytes;  // a multiple of 8
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
  // is over. An exchange takes as long as the collective lets it; a bucket that is never sent is an error.
  std::vector<Keeper> wait();

  // Returns when what was sent is exchanged; the step goes on.
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

  bool is_over() const { return closed_ || !error_.empty(); }
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
