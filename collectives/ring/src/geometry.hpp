// Which elements travel when: the arithmetic of the ring, free of MPI.
//
// Ranks 0 .. P - 1 sit on a clock face. Every message goes from a rank to the next one, clockwise.
//   chunk    one of P parts of the buffer, one per rank;
//   segment  one of S parts of a chunk, the unit of a message: while one is added, others travel;
//   lap      P - 1 steps. In the first lap (reduce-scatter) every chunk walks once around and each rank adds
//            its own values as it passes; then rank r holds the finished chunk r + 1. In the second lap
//            (allgather) the finished chunks walk on and are stored.
//
// One formula serves both laps. At step t = 0 .. 2 (P - 1) - 1, rank r sends chunk r - t and receives chunk
// r - t - 1 (mod P): what it receives at one step is what it sends at the next. The stream of messages from
// a rank to the next is numbered i = t S + segment.
#pragma once

#include <algorithm>
#include <cstddef>

namespace dlscale {

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
};

// Part `index` of `whole` cut into `num_parts`: sizes differ by at most one, the larger ones come first, and
// parts may be empty. (Written so that no product can overflow.)
inline Range part(Range whole, std::size_t index, std::size_t num_parts) {
  const std::size_t length = whole.size() / num_parts;
  const std::size_t num_longer = whole.size() % num_parts;
  const std::size_t begin = whole.begin + index * length + std::min(index, num_longer);
  return {begin, begin + length + (index < num_longer ? 1 : 0)};
}

// The messages of one rank for a buffer of `count` elements. Sends 2 (P - 1) / P * count elements in all.
class Ring {
 public:
  Ring(std::size_t count, std::size_t rank, std::size_t size, std::size_t max_segment)
      : count_(count), rank_(rank), size_(size) {
    const std::size_t longest_chunk = part({0, count}, 0, size).size();
    num_segments_ = longest_chunk == 0 ? 1 : (longest_chunk - 1) / max_segment + 1;
  }

  // Messages sent, and as many received; the first half of them belongs to the first lap.
  std::size_t num_messages() const { return 2 * lap(); }

  Range sent(std::size_t i) const { return at(i, i / num_segments_); }
  Range received(std::size_t i) const { return at(i, i / num_segments_ + 1); }

  // The largest message: no longer than `max_segment`.
  Range longest_segment() const { return part(part({0, count_}, 0, size_), 0, num_segments_); }

  // Received message i is added to the buffer; otherwise it replaces what is there.
  bool adds(std::size_t i) const { return i < lap(); }

  // Message i may be sent once this many were received: it hands on the segment of one step before.
  std::size_t num_received_before_sending(std::size_t i) const {
    return i < num_segments_ ? 0 : i - num_segments_ + 1;
  }

  // Message i may be received once this many were sent: in the second lap it lands in the buffer, where the
  // first lap sent from P - 1 steps before.
  std::size_t num_sent_before_receiving(std::size_t i) const { return adds(i) ? 0 : i - lap() + 1; }

 private:
  std::size_t lap() const { return (size_ - 1) * num_segments_; }

  Range at(std::size_t i, std::size_t num_steps_back) const {
    const std::size_t chunk = (rank_ + 2 * size_ - num_steps_back) % size_;
    return part(part({0, count_}, chunk, size_), i % num_segments_, num_segments_);
  }

  std::size_t count_;
  std::size_t rank_;
  std::size_t size_;
  std::size_t num_segments_;
};

}  // namespace dlscale
