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

// A rank is at most three chunks ahead of another, so the other one still finds the tag of its operation.
// What has no chunks keeps nobody together and has no turn.
void Staged::begin(const Job& job, const Slices& slices, std::size_t kind) {
  if (slices.num_chunks() == 0) return;
  // A type of its own, since rounded and plain offers differ in length.
  const Type type = job.rounding ? static_cast<Type>(kNumTypes) : job.type;
  tag_ = tag_of(slices.count(), type, job.op, kind);
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

// What this rank hands over goes out,
void Staged::put(const Job& job, std::byte* to, Range range, Ahead ahead) {
  if (job.rounding) {
    float* residual = job.rounding->offers ? job.rounding->offers + range.begin : nullptr;
    const auto* from = reinterpret_cast<const float*>(job.in(range));
    return kernels_.round_keeping(to, from, residual, range.size(), job.manner.streaming);
  }
  const auto copy = job.manner.streaming ? kernels_.copy_streaming : kernels_.copy;
  copy(to, job.in(range), range.size() * width(job.type), ahead);
}

// and what another one handed over comes in.
void Staged::take(const Job& job, Range range, const std::byte* from, Ahead ahead) {
  if (job.rounding) return kernels_.from_bfloat16(job.out(range), from, range.size());
  kernels_.copy(job.out(range), from, range.size() * width(job.type), ahead);
}

void Staged::fold_sources(const Job& job, Range own, std::byte* result) {
  if (!job.rounding) {
    return fold(kernels_, job.type, job.op,
                {job.out(own), result, sources_.data(), sources_.size(), own.size(), job.scale,
                 job.manner.streaming});
  }
  const auto residual = [&](float* all) { return all ? all + own.begin : nullptr; };
  kernels_.fold_rounded({reinterpret_cast<float*>(job.out(own)), result, sources_.data(),
                         static_cast<std::size_t>(rank_), residual(job.rounding->offers),
                         residual(job.rounding->results), sources_.size(), own.size(), job.scale});
}

void Staged::offer(const Job& job, const Slices& slices, std::size_t chunk) {
  const std::uint64_t number = num_chunks_ + chunk;
  if (number >= NodeMemory::kNumSlots) wait_until_folded(number - NodeMemory::kNumSlots + 1);
  const std::size_t slice_bytes = slices.slice() * job.width_between();
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
      ahead = {job.in(piece), piece.size() * width(job.type)};
    }
    put(job, memory_.offered(rank_, number) + owner * slice_bytes, range, ahead);
  }
  waiting_.announce(&board(rank_).copied, number + 1);
}

void Staged::fold_own(const Job& job, const Slices& slices, std::size_t chunk, bool publish) {
  const std::uint64_t number = num_chunks_ + chunk;
  const Range own = slices.at(chunk, static_cast<std::size_t>(rank_));
  if (own.size()) {
    for (int i = 1; i < size_; ++i) wait_for_offer(chunk, (rank_ + i) % size_);
    const std::size_t offset = static_cast<std::size_t>(rank_) * slices.slice() * job.width_between();
    for (int q = 0; q < size_; ++q) {
      sources_[static_cast<std::size_t>(q)] = q == rank_ ? job.in(own) : memory_.offered(q, number) + offset;
    }
    fold_sources(job, own, publish ? memory_.result(rank_, number) : nullptr);
  }
  waiting_.announce(&board(rank_).reduced, number + 1);
}

void Staged::publish_own(const Job& job, const Slices& slices, std::size_t chunk) {
  const std::uint64_t number = num_chunks_ + chunk;
  const Range own = slices.at(chunk, static_cast<std::size_t>(rank_));
  if (own.size()) {
    // Their results of three chunks ago are fetched.
    for (int i = 1; i < size_; ++i) wait_for_offer(chunk, (rank_ + i) % size_);
    put(job, memory_.result(rank_, number), own, {});
    if (job.out(own) != job.in(own)) take(job, own, job.in(own), {});
  }
  waiting_.announce(&board(rank_).reduced, number + 1);
}

void Staged::fetch(const Job& job, const Slices& slices, std::size_t chunk, bool more_to_come) {
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
    waiting_.until(&board(static_cast<int>(owner)).reduced, number + 1, static_cast<int>(owner));
    Ahead ahead;
    if (job.manner.ahead && more_to_come) {  // what will be offered next of this owner's
      const Range next = slices.at(std::min(chunk + NodeMemory::kNumSlots, slices.num_chunks() - 1), owner);
      ahead = {job.in(next), next.size() * width(job.type)};
    }
    take(job, range, memory_.result(static_cast<int>(owner), number), ahead);
  }
  if (waited_for_all) num_folded_by_all_ = std::max(num_folded_by_all_, number + 1);
}

}  // namespace dlscale
