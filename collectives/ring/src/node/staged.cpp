#include "staged.hpp"

#include <algorithm>
#include <cstdint>

namespace dlscale {

template <typename Publish, typename Take, typename Collect>
void Staged::pipeline(std::uint32_t tag, std::size_t num_chunks, std::size_t chunk_bytes, bool rotates,
                      const Publish& publish, const Take& take, const Collect& collect) {
  Counter& published = memory_.control_block(rank_).published;
  tag_ = tag;
  for (std::size_t k = 0; num_chunks && k < num_chunks + 2; ++k) {
    number_ = num_chunks_ + k;
    if (k < num_chunks) {
      if (number_ >= kAhead) wait_for_published(number_ - kAhead);
      places_[number_ % kNumSlots] = memory_.slots().place(number_, chunk_bytes, rotates);
      publish(k);
      between_steps();
      published.tags[number_ % kNumSlots].store(tag, std::memory_order_relaxed);
      waiting_.announce(&published, number_ + 1);
    }
    --number_;
    if (k >= 1 && k <= num_chunks) take(k - 1);
    --number_;
    if (k >= 2) collect(k - 2);
  }
  num_chunks_ += num_chunks;
}

void Staged::wait_for_published(std::uint64_t number) {
  if (num_published_by_all_ > number) return;
  for (int i = 1; i < size_; ++i) {
    const int q = (rank_ + i) % size_;
    waiting_.until(&memory_.control_block(q).published, number + 1, q);
  }
  num_published_by_all_ = number + 1;
}

// For the chunk that is taken; all must be in the same operation.
void Staged::wait_for_chunk() {
  wait_for_published(number_);
  for (int q = 0; q < size_; ++q) {
    const Counter& published = memory_.control_block(q).published;
    waiting_.compare(tag_, published.tags[number_ % kNumSlots].load(std::memory_order_relaxed), q);
  }
}

void Staged::put(const Job& job, std::byte* to, Range range) const {
  if (!range.size()) return;  // a rank that has nothing to give may have no memory either
  (job.streaming ? kernels_.copy_streaming : kernels_.copy)(to, job.in(range), job.bytes(range));
}

// A slot has a place for each owner's slice.
void Staged::publish_others(const Job& job, const Slices& slices, std::size_t chunk) {
  const std::size_t slice_bytes = slices.slice_bytes(job.type);
  for (int i = 1; i < size_; ++i) {
    const auto owner = static_cast<std::size_t>((rank_ + i) % size_);
    put(job, slot(rank_, number_) + owner * slice_bytes, slices.at(chunk, owner));
  }
}

// `range` lies at `offset` in the others' slots.
void Staged::reduce_from(std::size_t offset, const Job& job, Range range, std::byte* second) {
  wait_for_chunk();
  for (int q = 0; q < size_; ++q) {
    sources_[static_cast<std::size_t>(q)] = q == rank_ ? job.in(range) : slot(q, number_) + offset;
  }
  reduce(kernels_, job.type, job.op,
         {job.out(range), second, sources_.data(), sources_.size(), range.size(), job.scale, job.streaming});
}

void Staged::allreduce_one_shot(const Job& job, std::size_t count, std::size_t piece) {
  const auto range = [&](std::size_t k) { return Range{k * piece, std::min(count, (k + 1) * piece)}; };
  pipeline(
      tag_of(Operation::allreduce, count, job.type, job.op), (count + piece - 1) / piece, job.bytes(range(0)),
      job.rotates, [&](std::size_t k) { put(job, slot(rank_, number_), range(k)); },
      [&](std::size_t k) { reduce_from(0, job, range(k), nullptr); }, [](std::size_t) {});
}

void Staged::allreduce(const Job& job, const Slices& slices) {
  const auto own = static_cast<std::size_t>(rank_);
  const std::size_t slice_bytes = slices.slice_bytes(job.type);
  pipeline(
      tag_of(Operation::allreduce, slices.count(), job.type, job.op), slices.num_chunks(),
      slice_bytes * slices.num_owners(), job.rotates, [&](std::size_t k) { publish_others(job, slices, k); },
      [&](std::size_t k) {
        const Range range = slices.at(k, own);
        if (!range.size()) return;
        reduce_from(own * slice_bytes, job, range,
                    size_ > 1 ? slot(rank_, number_) + own * slice_bytes : nullptr);
        waiting_.announce(&memory_.control_block(rank_).reduced, number_ + 1);
      },
      [&](std::size_t k) {
        for (int i = 1; i < size_; ++i) {
          const int owner = (rank_ + i) % size_;
          const Range range = slices.at(k, static_cast<std::size_t>(owner));
          if (!range.size()) continue;
          waiting_.until(&memory_.control_block(owner).reduced, number_ + 1, owner);
          const std::byte* from = slot(owner, number_) + static_cast<std::size_t>(owner) * slice_bytes;
          kernels_.copy(job.out(range), from, job.bytes(range));
        }
      });
}

void Staged::reduce_scatter(const Job& job, const Slices& slices) {
  const auto own = static_cast<std::size_t>(rank_);
  const std::size_t slice_bytes = slices.slice_bytes(job.type);
  pipeline(
      tag_of(Operation::reduce_scatter, slices.count(), job.type, job.op), slices.num_chunks(),
      slice_bytes * slices.num_owners(), job.rotates, [&](std::size_t k) { publish_others(job, slices, k); },
      [&](std::size_t k) {
        const Range range = slices.at(k, own);
        if (range.size()) reduce_from(own * slice_bytes, job, range, nullptr);
      },
      [](std::size_t) {});
}

void Staged::allgather(const Job& job, const Slices& slices) {
  const auto own = static_cast<std::size_t>(rank_);
  pipeline(
      tag_of(Operation::allgather, slices.count(), job.type, job.op), slices.num_chunks(),
      slices.slice_bytes(job.type), job.rotates,
      [&](std::size_t k) { put(job, slot(rank_, number_), slices.at(k, own)); },
      [&](std::size_t k) {
        const Range mine = slices.at(k, own);
        if (mine.size() && job.out(mine) != job.in(mine))
          kernels_.copy(job.out(mine), job.in(mine), job.bytes(mine));
        for (int i = 1; i < size_; ++i) {
          const int q = (rank_ + i) % size_;
          const Range range = slices.at(k, static_cast<std::size_t>(q));
          if (!range.size()) continue;
          wait_for_chunk();
          kernels_.copy(job.out(range), slot(q, number_), job.bytes(range));
        }
      },
      [](std::size_t) {});
}

}  // namespace dlscale
