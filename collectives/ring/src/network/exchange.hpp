// Collective operations among the ranks of one transport, done a little at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "arithmetic.hpp"
#include "schedule.hpp"
#include "transport.hpp"
#include "tuning.hpp"

namespace dlscale::network {

// One operation at a time: `start_...`, then `progress` until `done`. All ranks start the same operations in
// the same order with equal counts. The buffer must live, and stay untouched, until `done`.
//
// Nothing blocks, so a thread can do other work between two calls of `progress`, for instance the phases of
// the node. It must come back: messages move only while somebody calls `progress`.
//
// After an exception other than std::invalid_argument or std::logic_error no operation can be started any
// more: messages of the broken one may still be under way.
class Exchange {
 public:
  // The transport must outlive the exchange, and serve nobody else.
  Exchange(Transport& transport, Tuning tuning);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Another tuning from the next operation on; the same on all ranks.
  void tune(Tuning tuning);

  // data[0, count) becomes the reduction over all ranks, with the same bits on all.
  void start_allreduce(std::byte* data, std::size_t count, Arithmetic arithmetic);
  // Chunk r of P, part({0, count}, r, P), becomes the reduction over all ranks on rank r; the rest of data is
  // scratch.
  void start_reduce_scatter(std::byte* data, std::size_t count, Arithmetic arithmetic);
  // Chunk r of P becomes that of rank r on all ranks. `element`: its bytes.
  void start_allgather(std::byte* data, std::size_t count, std::size_t element);
  // data[0, num_bytes) becomes that of `root` on all ranks.
  void start_broadcast(std::byte* data, std::size_t num_bytes, std::size_t root);
  // Done when all ranks have started it.
  void start_barrier();

  // Does what can be done now, at most one reduction. True if anything moved.
  bool progress();
  bool done() const;

  // The rank whose message is missed most; of use when nothing has moved for long. -1 when done.
  int waiting_for() const;

  // Aborts the operation, for instance because a rank is dead, as after an exception.
  void abort() noexcept;

 private:
  // A cache line: scratch made of them is aligned for every instruction set.
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  void start(Operation operation, std::byte* data, std::size_t count, std::size_t element,
             Arithmetic arithmetic, std::size_t root = 0);
  const Schedule& schedule_of(const Plan& plan);
  void reserve(const Schedule& schedule);
  bool advance();
  bool post_receives();
  bool start_sends();
  bool complete_sends();
  bool work_off_receive();
  void reduce(const Receive& receive);
  void reduce_into(std::byte* target, std::size_t count, bool completes);

  std::size_t bytes(Range range) const { return range.size() * element_; }
  std::byte* place(Range range) const { return data_ + range.begin * element_; }
  std::byte* slot(std::size_t i) { return scratch_[i % num_slots_ * slot_lines_].bytes; }
  std::size_t receive_request(std::size_t i) const { return i % num_slots_; }
  std::size_t send_request(std::size_t i) const { return num_slots_ + i % window_; }

  Transport& transport_;
  const Kernels& kernels_;
  Group group_;
  Tuning tuning_;
  bool failed_ = false;

  // The schedules of earlier operations: training repeats the same few.
  std::map<Plan, Schedule> schedules_;
  std::size_t num_messages_cached_ = 0;

  // The operation under way.
  const Schedule* schedule_;
  Arithmetic arithmetic_{};
  std::size_t element_ = 1;  // bytes
  std::byte* data_ = nullptr;
  std::int32_t flag_ = 0;  // of a barrier: only its arrival counts

  // Each stream has worked off a first part, and has a second part under way.
  std::size_t num_received_ = 0, num_posted_ = 0;
  std::size_t num_sent_ = 0, num_started_ = 0;
  // Receives into scratch are numbered on their own; a slot is free again when what it held was reduced.
  std::size_t num_slots_reduced_ = 0, num_slots_filled_ = 0, num_slots_posted_ = 0;
  std::size_t num_slots_ = 0, slot_lines_ = 0, window_ = 0, num_requests_ = 0;
  std::vector<Line> scratch_;
  std::vector<std::pair<int, const void*>> held_;  // rank and its values, waiting to be reduced
  std::vector<const void*> sources_;
};

}  // namespace dlscale::network
