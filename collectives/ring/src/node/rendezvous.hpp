// Where ranks meet before they touch each other's memory, and again afterwards: the rendezvous protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "control_block.hpp"
#include "waiting.hpp"

namespace dlscale {

// Between `open` and `close` every rank may read and write the buffers of all, each byte written by one rank.
// `open` hands over what the ranks wrote into their buffers before, and `close` what they wrote into each
// other's.
//
// Reuse: `open` n + 1 writes the word and the tag of n again. Each rank raised `closed` n after it had read
// them, and `close` n returned when all had. The buffers are the caller's again for the same reason.
class Rendezvous {
 public:
  Rendezvous(NodeMemory& memory, Waiting& waiting, int rank, int size)
      : memory_(memory),
        waiting_(waiting),
        rank_(rank),
        size_(size),
        words_(static_cast<std::size_t>(size)) {}

  // Meets all. Returns a rank whose tag differs from this one's, or this rank. words()[q] is rank q's word.
  int open(std::uint32_t tag, std::uint64_t word) {
    Counter& own = memory_.control_block(rank_).opened;
    own.word = word;
    between_steps();
    own.tag.store(tag, std::memory_order_relaxed);
    waiting_.announce(&own, ++num_meetings_);
    words_[static_cast<std::size_t>(rank_)] = word;
    int differing = rank_;
    for (int i = 1; i < size_; ++i) {
      const int q = (rank_ + i) % size_;
      Counter& other = memory_.control_block(q).opened;
      waiting_.until(&other, num_meetings_, q);
      if (other.tag.load(std::memory_order_relaxed) != tag) differing = q;
      words_[static_cast<std::size_t>(q)] = other.word;
    }
    return differing;
  }

  // Returns when all are done with this rank's buffer, and with their own.
  void close() {
    waiting_.announce(&memory_.control_block(rank_).closed, num_meetings_);
    for (int i = 1; i < size_; ++i) {
      const int q = (rank_ + i) % size_;
      waiting_.until(&memory_.control_block(q).closed, num_meetings_, q);
    }
  }

  const std::vector<std::uint64_t>& words() const { return words_; }

 private:
  NodeMemory& memory_;
  Waiting& waiting_;
  int rank_;
  int size_;
  std::vector<std::uint64_t> words_;
  std::uint64_t num_meetings_ = 0;
};

}  // namespace dlscale
