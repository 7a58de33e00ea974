// The layout of each rank's part of the shared memory: counters, flags and staging areas.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "waiting.hpp"

namespace dlscale {

constexpr std::size_t kLine = 64;

// A message so small that it travels in the cache line of its own counter: one miss instead of two.
struct alignas(kLine) InlineLine {
  static constexpr std::size_t kPayloadBytes = 48;
  std::atomic<std::uint64_t> number;
  std::byte payload[kPayloadBytes];
  std::atomic<std::uint32_t> num_sleepers;
  std::atomic<std::uint32_t> tag;  // see Counter
};
static_assert(sizeof(InlineLine) == kLine, "payload and counter share one line");

struct ControlBlock {
  alignas(128) InlineLine lines[2];  // by turns: who writes one knows that all have read its last use
  Counter one_shot;                  // pieces published
  Counter published;                 // chunks published to their owners
  Counter reduced;                   // chunks whose own slice is finished
  Counter arrived;                   // direct pushes: ready to be read and written
  Counter pushed;                    // direct pushes: has written everybody's slice
  struct alignas(128) {
    std::uint64_t name[2], count[2];  // of the push under way, by turns
  } push;
  Counter lending;     // single copies: says where its buffer lies
  Counter given_back;  // single copies: no longer touches anybody's, and says whether the kernel refused any
  Counter timed;       // large operations timed
  struct {
    std::atomic<std::uint64_t> begin[4], end[4];  // of the last of them, nanoseconds by the node's clock
  } times;
  Counter laps;                    // of a line around all ranks: see Distance
  std::atomic<std::uint64_t> hop;  // found by them, picoseconds; rank 0's counts
  WaitsFor waits_for;
  FailureNote failure;  // rank 0's counts
};

// Part layout: control block, two one-shot slots, `kNumSlots` slots of slices for others, as many of results.
class NodeMemory {
 public:
  static constexpr std::size_t kNumSlots = 3;

  // `chunk_bytes`: the largest chunk, all ranks' slices together. Both sizes are multiples of a line.
  NodeMemory(Bootstrap& bootstrap, std::size_t one_shot_bytes, std::size_t chunk_bytes,
             const SharedMemoryOptions& options)
      : one_shot_bytes_(one_shot_bytes),
        chunk_bytes_(chunk_bytes),
        memory_(bootstrap, kControlBytes + 2 * one_shot_bytes + 2 * kNumSlots * chunk_bytes, options) {}

  std::size_t one_shot_bytes() const { return one_shot_bytes_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  const char* kind() const { return memory_.kind(); }

  ControlBlock& control_block(int q) const { return *reinterpret_cast<ControlBlock*>(memory_.part(q)); }
  std::vector<WaitsFor*> waits_for(int size) const {
    std::vector<WaitsFor*> all;
    for (int q = 0; q < size; ++q) all.push_back(&control_block(q).waits_for);
    return all;
  }
  std::byte* one_shot(int q, std::uint64_t turn) const {
    return memory_.part(q) + kControlBytes + turn % 2 * one_shot_bytes_;
  }
  // What q publishes of a chunk for the others: their slices one after the other.
  std::byte* published(int q, std::uint64_t chunk) const {
    return memory_.part(q) + kControlBytes + 2 * one_shot_bytes_ + chunk % kNumSlots * chunk_bytes_;
  }
  // q's finished slice of a chunk; as long as a chunk, for operations with one owner.
  std::byte* result(int q, std::uint64_t chunk) const {
    return memory_.part(q) + kControlBytes + 2 * one_shot_bytes_ +
           (kNumSlots + chunk % kNumSlots) * chunk_bytes_;
  }

 private:
  static constexpr std::size_t kControlBytes = (sizeof(ControlBlock) + 4095) / 4096 * 4096;

  std::size_t one_shot_bytes_;
  std::size_t chunk_bytes_;
  SharedMemory memory_;
};

}  // namespace dlscale
