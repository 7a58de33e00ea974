#include "staged.hpp"

#include <algorithm>

namespace dlscale {

// Why three slots need no further synchronisation. Offering chunk c overwrites the slot of c - 3, which all
// owners have folded (waited for in `offer` unless known). Folding c overwrites the result of c - 3: every
// rank has announced its offer of c, which it makes after its fetch of c - 3.
void Staged::allreduce(const Job& job, const Slices& slices) {
  const std::size_t n = slices.num_chunks();
  begin(job, slices, 0);
  for (std::size_t k = 0; k < n + 2; ++k) {
    if (k < n) offer(job, slices, k);
    if (k >= 1 && k < n + 1) fold_own(job, slices, k - 1, true);
    if (k >= 2) fetch(job, slices, k - 2, k + 1 < n);
  }
  num_chunks_ += n;
}

void Staged::reduce_scatter(const Job& job, const Slices& slices) {
  const std::size_t n = slices.num_chunks();
  begin(job, slices, 1);
  for (std::size_t k = 0; k < n + 1; ++k) {
    if (k < n) offer(job, slices, k);
    if (k >= 1) fold_own(job, slices, k - 1, false);
  }
  num_chunks_ += n;
}

// Nothing is offered here; the counter of offers says instead how far the results were fetched: announced c +
// 1 means that the results before c - 2 are free to be overwritten.
void Staged::allgather(const Job& job, const Slices& slices) {
  const std::size_t n = slices.num_chunks();
  const auto allow = [&](std::size_t num_fetched) {
    waiting_.announce(&board(rank_).copied, num_chunks_ + std::min(n, num_fetched + NodeMemory::kNumSlots));
  };
  begin(job, slices, 1);
  if (n) allow(0);
  for (std::size_t k = 0; k < n + 1; ++k) {
    if (k < n) publish_own(job, slices, k);
    if (k >= 1) {
      fetch(job, slices, k - 1, false);
      allow(k);
    }
  }
  num_chunks_ += n;
}

// An operation that an earlier rank still works on is one turn back: its tag is not overwritten.
void Staged::begin(const Job& job, const Slices& slices, std::size_t kind) {
  tag_ = tag_of(slices.count(), job.type, job.op, kind);
  board(rank_).copied.tags[num_operations_++ % 4].store(tag_, std::memory_order_relaxed);
}

void Staged::wait_for_offer(std::size_t chunk, int q) {
  Counter& counter = board(q).copied;
  waiting_.until(&counter, num_chunks_ + chunk + 1, q);
  if (chunk) return;
  waiting_.compare(tag_, counter.tags[(num_operations_ - 1) % 4].load(std::memory_order_relaxed), q);
}

void Staged::wait_until_folded(std::uint64_t num_chunks) {
  if (num_folded_by_all_ >= num_chunks) return;
  for (int q = 0; q < size_; ++q) waiting_.until(&board(q).reduced, num_chunks, q);
  num_folded_by_all_ = num_chunks;
}

void Staged::offer(const Job& job, const Slices& slices, std::size_t chunk) {
  const std::uint64_t number = num_chunks_ + chunk;
  if (number >= NodeMemory::kNumSlots) wait_until_folded(number - NodeMemory::kNumSlots + 1);
  const std::size_t element = width(job.type);
  const std::size_t slice_bytes = slices.slice() * element;
  const auto copy = job.manner.streaming ? kernels_.copy_streaming : kernels_.copy;
  const Range own = slices.at(chunk, static_cast<std::size_t>(rank_));
  const std::size_t num_owners = slices.num_owners();
  std::size_t turn = 0;
  for (std::size_t i = 1; i <= num_owners; ++i) {
    const std::size_t owner = (static_cast<std::size_t>(rank_) + i) % num_owners;
    if (owner == static_cast<std::size_t>(rank_)) continue;
    const Range range = slices.at(chunk, owner);
    Ahead ahead;
    if (job.manner.ahead && num_owners > 1) {  // the own slice is folded next: a part of it with every copy
      const Range piece = part(own, turn++, num_owners - 1);
      ahead = {job.in(piece), piece.size() * element};
    }
    copy(memory_.offered(rank_, number) + owner * slice_bytes, job.in(range), range.size() * element, ahead);
  }
  waiting_.announce(&board(rank_).copied, number + 1);
}

void Staged::fold_own(const Job& job, const Slices& slices, std::size_t chunk, bool publish) {
  const std::uint64_t number = num_chunks_ + chunk;
  const std::size_t element = width(job.type);
  const Range own = slices.at(chunk, static_cast<std::size_t>(rank_));
  if (own.size()) {
    for (int i = 1; i < size_; ++i) wait_for_offer(chunk, (rank_ + i) % size_);
    const std::size_t offset = static_cast<std::size_t>(rank_) * slices.slice() * element;
    for (int q = 0; q < size_; ++q) {
      sources_[static_cast<std::size_t>(q)] = q == rank_ ? job.in(own) : memory_.offered(q, number) + offset;
    }
    fold(kernels_, job.type, job.op,
         {job.out(own), publish ? memory_.result(rank_, number) : nullptr, sources_.data(), sources_.size(),
          own.size(), job.scale, job.manner.streaming});
  }
  waiting_.announce(&board(rank_).reduced, number + 1);
}

void Staged::publish_own(const Job& job, const Slices& slices, std::size_t chunk) {
  const std::uint64_t number = num_chunks_ + chunk;
  const std::size_t element = width(job.type);
  const Range own = slices.at(chunk, static_cast<std::size_t>(rank_));
  if (own.size()) {
    // Their results of three chunks ago are fetched.
    for (int i = 1; i < size_; ++i) wait_for_offer(chunk, (rank_ + i) % size_);
    const std::byte* from = job.in(own);
    const auto copy = job.manner.streaming ? kernels_.copy_streaming : kernels_.copy;
    copy(memory_.result(rank_, number), from, own.size() * element, {});
    std::byte* to = job.out(own);
    if (to != from) kernels_.copy(to, from, own.size() * element, {});
  }
  waiting_.announce(&board(rank_).reduced, number + 1);
}

void Staged::fetch(const Job& job, const Slices& slices, std::size_t chunk, bool more_to_come) {
  const std::uint64_t number = num_chunks_ + chunk;
  const std::size_t element = width(job.type);
  const std::size_t num_owners = slices.num_owners();
  bool waited_for_all = num_owners == static_cast<std::size_t>(size_);
  for (std::size_t i = 1; i <= num_owners; ++i) {
    const std::size_t owner = (static_cast<std::size_t>(rank_) + i) % num_owners;
    if (owner == static_cast<std::size_t>(rank_)) continue;
    const Range range = slices.at(chunk, owner);
    if (!range.size()) {
      waited_for_all = false;
      continue;
    }
    waiting_.until(&board(static_cast<int>(owner)).reduced, number + 1, static_cast<int>(owner));
    Ahead ahead;
    if (job.manner.ahead && more_to_come) {  // what will be offered next of this owner's
      const Range next = slices.at(std::min(chunk + NodeMemory::kNumSlots, slices.num_chunks() - 1), owner);
      ahead = {job.in(next), next.size() * element};
    }
    kernels_.copy(job.out(range), memory_.result(static_cast<int>(owner), number), range.size() * element,
                  ahead);
  }
  if (waited_for_all) num_folded_by_all_ = std::max(num_folded_by_all_, number + 1);
}

}  // namespace dlscale
