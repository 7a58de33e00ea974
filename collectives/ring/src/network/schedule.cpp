#include "schedule.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace dlscale::network {
namespace {

// Calls `take` with the pieces of `range`, none longer than `longest`.
template <typename Take>
void cut(Range range, std::size_t longest, Take take) {
  if (range.size() == 0) return;
  const std::size_t num_parts = (range.size() - 1) / longest + 1;
  for (std::size_t i = 0; i < num_parts; ++i) take(part(range, i, num_parts));
}

}  // namespace

void Writer::LastTouch::set(Range range, std::size_t count) {
  const std::size_t count_after = std::prev(from_.upper_bound(range.end))->second;
  from_.erase(from_.lower_bound(range.begin), from_.upper_bound(range.end));
  from_[range.begin] = count;
  from_[range.end] = count_after;
}

std::size_t Writer::LastTouch::latest(Range range) const {
  std::size_t count = 0;
  for (auto stretch = std::prev(from_.upper_bound(range.begin));
       stretch != from_.end() && stretch->first < range.end; ++stretch) {
    count = std::max(count, stretch->second);
  }
  return count;
}

void Writer::send(std::size_t peer, Range range) {
  cut(range, max_segment_, [&](Range piece) {
    schedule_.sends.push_back({static_cast<int>(peer), piece, received_.latest(piece)});
    sent_.set(piece, schedule_.sends.size());
  });
}

void Writer::receive(std::size_t peer, Range range, Arrival arrival, bool completes) {
  if ((arrival == Arrival::held || num_held_ > 0) && range.size() > max_segment_) {
    throw std::logic_error("what is reduced together with others must fit into one segment");
  }
  cut(range, max_segment_, [&](Range piece) {
    schedule_.receives.push_back(
        {static_cast<int>(peer), piece, arrival, completes, sent_.latest(piece), received_.latest(piece)});
    if (arrival != Arrival::held) received_.set(piece, schedule_.receives.size());
    if (arrival == Arrival::stored) return;
    schedule_.longest_in_scratch = std::max(schedule_.longest_in_scratch, piece.size());
    ++num_held_;
    schedule_.largest_reduction = std::max(schedule_.largest_reduction, num_held_);
    if (arrival == Arrival::reduced) num_held_ = 0;
  });
}

}  // namespace dlscale::network
