#include "staged.hpp"

#include <algorithm>
#include <cstdint>

namespace dlscale {

// Why three slots need no further synchronisation. Publishing chunk c overwrites the slot of c - 3, which all
// owners have reduced (waited for in `publish` unless known). Reducing c overwrites the result of c - 3:
// every rank has announced that c is published, which it does after it has collected c - 3.
void Staged::allreduce(const Job& job, const Slices& slices) {
  const std::size_t n = slices.num_chunks();
  begin(job, slices, 0);
  for (std::size_t k = 0; k < n + 2; ++k) {
    if (k < n) place(job, slices, k, true, true);
    if (k < n) publish(job, slices, k);
    if (k >= 1 && k < n + 1) reduce_own(job, slices, k - 1, true);
    if (k >= 2) collect(job, slices, k - 2);
  }
  num_chunks_ += n;
}

void Staged::reduce_scatter(const Job& job, const Slices& slices) {
  const std::size_t n = slices.num_chunks();
  begin(job, slices, 1);
  for (std::size_t k = 0; k < n + 1; ++k) {
    if (k < n) place(job, slices, k, true, false);
    if (k < n) publish(job, slices, k);
    if (k >= 1) reduce_own(job, slices, k - 1, false);
  }
  num_chunks_ += n;
}

// Nothing is published here; its counter says instead how far the results were collected: announced c + 1
// means that the results before c - 2 are free to be overwritten.
void Staged::allgather(const Job& job, const Slices& slices) {
  const std::size_t n = slices.num_chunks();
  const auto allow = [&](std::size_t num_collected) {
    waiting_.announce(&control_block(rank_).published,
                      num_chunks_ + std::min(n, num_collected + NodeMemory::kNumSlots));
  };
  begin(job, slices, 1);
  if (n) allow(0);
  for (std::size_t k = 0; k < n + 1; ++k) {
    if (k < n) place(job, slices, k, false, true);
    if (k < n) store_own(job, slices, k);
    if (k >= 1) {
      collect(job, slices, k - 1);
      allow(k);
    }
  }
  num_chunks_ += n;
}

// A rank is at most three chunks ahead of another, so the other one still finds the tag of its operation.
// What has no chunks keeps nobody together and has no turn.
void Staged::begin(const Job& job, const Slices& slices, std::size_t kind) {
  if (slices.num_chunks() == 0) return;
  tag_ = tag_of(slices.count(), job.type, job.op, kind);
  control_block(rank_).published.tags[num_operations_++ % 4].store(tag_, std::memory_order_relaxed);
}

void Staged::wait_for_published(std::size_t chunk, int q) {
  Counter& counter = control_block(q).published;
  waiting_.until(&counter, num_chunks_ + chunk + 1, q);
  if (chunk) return;
  waiting_.compare(tag_, counter.tags[(num_operations_ - 1) % 4].load(std::memory_order_relaxed), q);
}

void Staged::wait_until_reduced(std::uint64_t num_chunks) {
  if (num_reduced_by_all_ >= num_chunks) return;
  for (int q = 0; q < size_; ++q) waiting_.until(&control_block(q).reduced, num_chunks, q);
  num_reduced_by_all_ = num_chunks;
}

void Staged::put(const Job& job, std::byte* to, Range range) const {
  if (!range.size()) return;  // a rank that has nothing to give may have no memory either
  (job.streaming ? kernels_.copy_streaming : kernels_.copy)(to, job.in(range),
                                                            range.size() * width(job.type));
}

void Staged::take(const Job& job, Range range, const std::byte* from) const {
  if (range.size()) kernels_.copy(job.out(range), from, range.size() * width(job.type));
}

void Staged::publish(const Job& job, const Slices& slices, std::size_t chunk) {
  const std::uint64_t number = num_chunks_ + chunk;
  if (number >= NodeMemory::kNumSlots) wait_until_reduced(number - NodeMemory::kNumSlots + 1);
  const std::size_t slice_bytes = slice_bytes_of(job, slices, chunk);
  const std::size_t num_owners = slices.num_owners();
  for (std::size_t i = 1; i <= num_owners; ++i) {
    const std::size_t owner = (static_cast<std::size_t>(rank_) + i) % num_owners;
    if (owner == static_cast<std::size_t>(rank_)) continue;
    put(job, published(rank_, number) + owner * slice_bytes, slices.at(chunk, owner));
  }
  waiting_.announce(&control_block(rank_).published, number + 1);
}

// Room for the longest slice of a chunk, in whole lines.
std::size_t Staged::slice_bytes_of(const Job& job, const Slices& slices, std::size_t chunk) {
  return (slices.longest(chunk) * width(job.type) + kLine - 1) / kLine * kLine;
}

// All ranks place all chunks, so that each knows where those of the others are.
void Staged::place(const Job& job, const Slices& slices, std::size_t chunk, bool publishes, bool finishes) {
  Places& places = places_[(num_chunks_ + chunk) % NodeMemory::kNumSlots];
  const std::size_t slice_bytes = slice_bytes_of(job, slices, chunk);
  const bool rotates = job.rotates;
  if (publishes)
    places.published = memory_.published_places().next(slices.num_owners() * slice_bytes, rotates);
  if (finishes) places.result = memory_.result_places().next(slice_bytes, rotates);
}

void Staged::reduce_own(const Job& job, const Slices& slices, std::size_t chunk, bool for_others) {
  const std::uint64_t number = num_chunks_ + chunk;
  const Range own = slices.at(chunk, static_cast<std::size_t>(rank_));
  if (own.size()) {
    for (int i = 1; i < size_; ++i) wait_for_published(chunk, (rank_ + i) % size_);
    const std::size_t offset = static_cast<std::size_t>(rank_) * slice_bytes_of(job, slices, chunk);
    for (int q = 0; q < size_; ++q) {
      brought_[static_cast<std::size_t>(q)] = q == rank_ ? job.in(own) : published(q, number) + offset;
    }
    reduce(kernels_, job.type, job.op,
           {job.out(own), for_others ? result(rank_, number) : nullptr, brought_.data(), brought_.size(),
            own.size(), job.scale, job.streaming});
  }
  waiting_.announce(&control_block(rank_).reduced, number + 1);
}

void Staged::store_own(const Job& job, const Slices& slices, std::size_t chunk) {
  const std::uint64_t number = num_chunks_ + chunk;
  const Range own = slices.at(chunk, static_cast<std::size_t>(rank_));
  if (own.size()) {
    // Their results of three chunks ago are collected.
    for (int i = 1; i < size_; ++i) wait_for_published(chunk, (rank_ + i) % size_);
    put(job, result(rank_, number), own);
    if (job.out(own) != job.in(own)) take(job, own, job.in(own));
  }
  waiting_.announce(&control_block(rank_).reduced, number + 1);
}

void Staged::collect(const Job& job, const Slices& slices, std::size_t chunk) {
  const std::uint64_t number = num_chunks_ + chunk;
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
    waiting_.until(&control_block(static_cast<int>(owner)).reduced, number + 1, static_cast<int>(owner));
    take(job, range, result(static_cast<int>(owner), number));
  }
  if (waited_for_all) num_reduced_by_all_ = std::max(num_reduced_by_all_, number + 1);
}

}  // namespace dlscale
