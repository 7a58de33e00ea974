#include "exchange.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dlscale::network {
namespace {

constexpr std::size_t kMaxCachedMessages = 1 << 16;  // of schedules, about 50 bytes each
const Schedule kNothing;
constexpr const char* kFailedBefore = "an earlier operation between nodes failed; end the run";

}  // namespace

Exchange::Exchange(Transport& transport, Tuning tuning)
    : transport_(transport),
      kernels_(kernels()),
      group_(transport.group()),
      tuning_(std::move(tuning)),
      schedule_(&kNothing) {
  tuning_.check();
}

Exchange::~Exchange() {
  if (!done()) abort();
}

void Exchange::tune(Tuning tuning) {
  tuning.check();
  tuning_ = std::move(tuning);
}

void Exchange::start_allreduce(std::byte* data, std::size_t count, Arithmetic arithmetic) {
  start(Operation::allreduce, data, count, width(arithmetic.type), arithmetic);
}

void Exchange::start_reduce_scatter(std::byte* data, std::size_t count, Arithmetic arithmetic) {
  start(Operation::reduce_scatter, data, count, width(arithmetic.type), arithmetic);
}

void Exchange::start_allgather(std::byte* data, std::size_t count, std::size_t element) {
  start(Operation::allgather, data, count, element, {});
}

void Exchange::start_broadcast(std::byte* data, std::size_t num_bytes, std::size_t root) {
  start(Operation::broadcast, data, num_bytes, 1, {}, root);
}

void Exchange::start_barrier() {
  start(Operation::barrier, reinterpret_cast<std::byte*>(&flag_), 1, sizeof(flag_), {Type::int32, Op::max});
}

void Exchange::start(Operation operation, std::byte* data, std::size_t count, std::size_t element,
                     Arithmetic arithmetic, std::size_t root) {
  if (failed_) throw std::runtime_error(kFailedBefore);
  if (!done()) throw std::logic_error("the operation before this one is not done yet");
  schedule_ = &kNothing;
  num_received_ = num_posted_ = num_sent_ = num_started_ = 0;
  num_slots_reduced_ = num_slots_filled_ = num_slots_posted_ = 0;
  data_ = data;
  element_ = element;
  arithmetic_ = arithmetic;
  const bool reduces = operation == Operation::allreduce || operation == Operation::reduce_scatter;
  if (group_.size == 1 && reduces && count > 0) {
    sources_ = {data};
    reduce_into(data, count, true);
  }
  const Plan plan = tuning_.plan(operation, count, element, reduces && arithmetic.in_rank_order(), root);
  const Schedule& schedule = schedule_of(plan);
  reserve(schedule);
  schedule_ = &schedule;
  try {
    post_receives();
    start_sends();
  } catch (...) {
    abort();
    throw;
  }
}

const Schedule& Exchange::schedule_of(const Plan& plan) {
  const auto known = schedules_.find(plan);
  if (known != schedules_.end()) return known->second;
  Schedule written = schedule(plan, group_);
  const std::size_t num_messages = written.sends.size() + written.receives.size();
  if (num_messages_cached_ + num_messages > kMaxCachedMessages) {
    schedules_.clear();
    num_messages_cached_ = 0;
  }
  num_messages_cached_ += num_messages;
  return schedules_.emplace(plan, std::move(written)).first->second;
}

// Memory and requests for this operation; those of earlier ones are kept.
void Exchange::reserve(const Schedule& schedule) {
  window_ = tuning_.window;
  num_slots_ = std::max(window_, 2 * schedule.largest_reduction);
  const std::size_t slot_bytes = schedule.longest_in_scratch * element_;
  slot_lines_ = (slot_bytes + sizeof(Line) - 1) / sizeof(Line);
  if (scratch_.size() < num_slots_ * slot_lines_) scratch_.resize(num_slots_ * slot_lines_);
  if (num_requests_ < num_slots_ + window_) {
    num_requests_ = num_slots_ + window_;
    transport_.reserve(num_requests_);
  }
}

bool Exchange::done() const {
  return num_received_ == schedule_->receives.size() && num_sent_ == schedule_->sends.size();
}

bool Exchange::progress() {
  if (failed_) throw std::runtime_error(kFailedBefore);
  if (done()) return false;
  try {
    return advance();
  } catch (...) {
    abort();
    throw;
  }
}

// Receives come first throughout: what has no place to go waits in MPI's own memory, or is not sent at all.
bool Exchange::advance() {
  bool moved = complete_sends();
  moved |= work_off_receive();
  moved |= post_receives();
  moved |= start_sends();
  return moved;
}

bool Exchange::post_receives() {
  const std::vector<Receive>& receives = schedule_->receives;
  const std::size_t before = num_posted_;
  for (; num_posted_ < std::min(receives.size(), num_received_ + num_slots_); ++num_posted_) {
    const Receive& receive = receives[num_posted_];
    std::byte* target = place(receive.range);
    if (receive.arrival == Arrival::stored) {
      if (num_sent_ < receive.num_sent_before || num_received_ < receive.num_received_before) break;
    } else {
      if (num_slots_posted_ == num_slots_reduced_ + num_slots_) break;
      target = slot(num_slots_posted_++);
    }
    transport_.receive(receive_request(num_posted_), receive.peer, target, bytes(receive.range));
  }
  return num_posted_ != before;
}

bool Exchange::start_sends() {
  const std::vector<Send>& sends = schedule_->sends;
  const std::size_t before = num_started_;
  for (; num_started_ < std::min(sends.size(), num_sent_ + window_); ++num_started_) {
    const Send& send = sends[num_started_];
    if (num_received_ < send.num_received_before) break;
    transport_.send(send_request(num_started_), send.peer, place(send.range), bytes(send.range));
  }
  return num_started_ != before;
}

bool Exchange::complete_sends() {
  const std::size_t before = num_sent_;
  while (num_sent_ < num_started_ && transport_.test(send_request(num_sent_))) ++num_sent_;
  return num_sent_ != before;
}

bool Exchange::work_off_receive() {
  if (num_received_ == num_posted_) return false;
  const Receive& receive = schedule_->receives[num_received_];
  if (receive.arrival == Arrival::reduced && num_sent_ < receive.num_sent_before) return false;
  const std::optional<std::size_t> num_bytes = transport_.test(receive_request(num_received_));
  if (!num_bytes) return false;
  // A shorter message than expected is no error to MPI, but its sum would be wrong.
  if (*num_bytes == 0) {
    throw PartnerFailure(receive.peer, PartnerFailure::Cause::aborted,
                         " aborted this operation; its own error says why");
  }
  if (*num_bytes != bytes(receive.range)) {
    throw PartnerFailure(receive.peer, PartnerFailure::Cause::differing,
                         " sent " + std::to_string(*num_bytes) + " bytes where " +
                             std::to_string(bytes(receive.range)) +
                             " were expected; give buffers equal in dtype and length on all ranks");
  }
  if (receive.arrival != Arrival::stored) {
    held_.emplace_back(receive.peer, slot(num_slots_filled_++));
    if (receive.arrival == Arrival::reduced) reduce(receive);
  }
  ++num_received_;
  return true;
}

void Exchange::reduce(const Receive& receive) {
  held_.emplace_back(static_cast<int>(group_.rank), place(receive.range));
  std::sort(held_.begin(), held_.end());
  sources_.clear();
  for (const auto& [rank, values] : held_) sources_.push_back(values);
  held_.clear();
  reduce_into(place(receive.range), receive.range.size(), receive.completes);
  num_slots_reduced_ = num_slots_filled_;
}

void Exchange::reduce_into(std::byte* target, std::size_t count, bool completes) {
  dlscale::reduce(
      kernels_, arithmetic_.type, arithmetic_.op,
      {target, nullptr, sources_.data(), sources_.size(), count, completes ? arithmetic_.scale : 1, false});
}

int Exchange::waiting_for() const {
  if (num_received_ < num_posted_) return schedule_->receives[num_received_].peer;
  if (num_sent_ < num_started_) return schedule_->sends[num_sent_].peer;
  return -1;
}

// No message of a schedule is empty, so an empty one says that the rest will not come. A rank that receives
// it aborts too, and so on, until all know.
void Exchange::abort() noexcept {
  transport_.abort();
  for (std::size_t i = num_started_; i < schedule_->sends.size(); ++i) {
    const int peer = schedule_->sends[i].peer;
    bool notified = false;
    for (std::size_t j = num_started_; j < i && !notified; ++j) notified = schedule_->sends[j].peer == peer;
    if (!notified) transport_.notify(peer);
  }
  failed_ = true;
  schedule_ = &kNothing;
  num_received_ = num_posted_ = num_sent_ = num_started_ = 0;
}

}  // namespace dlscale::network
