// Which elements travel when, for one rank: plain lists, free of MPI. `Exchange` does what they say; the
// tests read them too and prove them for 1 .. 64 ranks.
//
//   message  one transfer between two ranks: a range of elements, no longer than the segment;
//   stream   a rank has two, its sends and its receives. Each is worked off in order, a window of them at a
//            time. Neither ever waits for the other but where a message says so (`num_..._before`), so what
//            two ranks send each other may cross.
//
// Between two ranks the k-th message sent is the k-th received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "../geometry.hpp"

namespace dlscale::network {

// This rank's place among those that exchange.
struct Group {
  std::size_t rank;
  std::size_t size;
};

struct Send {
  int peer;
  Range range;
  std::size_t num_received_before;  // may start once that many receives were worked off
};

enum class Arrival : std::uint8_t {
  stored,   // lands in the buffer
  held,     // lands in scratch and waits there for the next that is reduced
  reduced,  // lands in scratch; then the held messages, this one and the rank's own values become one, in
            // order of rank
};

struct Receive {
  int peer;
  Range range;
  Arrival arrival;
  bool completes;  // reduced for the last time: nothing is missing from these elements any more
  // May touch the buffer once that many sends were completed, and that many receives worked off: before it is
  // posted if it is stored, before it is reduced otherwise.
  std::size_t num_sent_before;
  std::size_t num_received_before;
};

struct Schedule {
  std::vector<Send> sends;
  std::vector<Receive> receives;
  std::size_t longest_in_scratch = 0;  // elements of the longest message that is held or reduced
  // Most messages that one reduction takes, hence must be in scratch at once.
  std::size_t largest_reduction = 0;
};

// Writes a schedule down in program order, as if every message were instantaneous, and finds out what must
// wait for what: a send for the receives that wrote its elements, a receive for the sends that read them.
class Writer {
 public:
  // `max_segment`: elements, at least 1.
  explicit Writer(std::size_t max_segment) : max_segment_(max_segment) {}

  // A range longer than the segment becomes several messages, an empty one none.
  void send(std::size_t peer, Range range);
  void receive(std::size_t peer, Range range, Arrival arrival, bool completes = false);

  Schedule finish() { return std::move(schedule_); }

 private:
  // For every element the last message that touched it, as a count: message i leaves i + 1, nobody 0.
  class LastTouch {
   public:
    void set(Range range, std::size_t count);
    std::size_t latest(Range range) const;

   private:
    std::map<std::size_t, std::size_t> from_ = {{0, 0}};  // first element of a stretch -> its count
  };

  std::size_t max_segment_;
  std::size_t num_held_ = 0;
  LastTouch sent_;
  LastTouch received_;
  Schedule schedule_;
};

}  // namespace dlscale::network
