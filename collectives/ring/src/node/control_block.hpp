// Each rank's part of the node's shared memory: a control block, then the slots that it stages messages in.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "flags.hpp"
#include "memory.hpp"

namespace dlscale {

struct ControlBlock {
  alignas(128) InlineLine lines[2];
  Counter published;  // chunks whose slot is filled
  Counter reduced;    // chunks whose own slice is reduced
  Counter opened;     // rendezvous that this rank has come to, and left
  Counter closed;
  Counter timed;  // operations whose times are there
  struct {
    std::uint64_t begin[4], end[4];  // nanoseconds by the node's clock
  } times;
  WaitsFor waits_for;
  FailureNote failure;  // rank 0's counts
};

// Where chunks are staged: kNumSlots fixed slots, taken in turn, and a ring in which every chunk comes to lie
// behind the one before. The fixed ones are few, so that they stay in the caches. The ring is twice as large
// as the second-level cache: where cores share a third-level cache, a line that another core still has in its
// own second level takes three times as long to overwrite as one that has moved on.
//
// A chunk overlaps none of the kNumSlots - 1 before it: the ring holds kNumSlots of the largest and what is
// left at its end. All ranks place the same chunks, so each knows where those of the others lie.
class Slots {
 public:
  Slots(std::size_t slot_bytes, std::size_t ring_bytes) : slot_bytes_(slot_bytes), ring_bytes_(ring_bytes) {}

  std::size_t slot_bytes() const { return slot_bytes_; }
  std::size_t ring_bytes() const { return ring_bytes_; }
  std::size_t num_bytes() const { return kNumSlots * slot_bytes_ + ring_bytes_; }

  // The place of the next chunk, `number`. `rotates`: in the ring, if there is room for so many of this size.
  std::size_t place(std::uint64_t number, std::size_t num_bytes, bool rotates) {
    if (!rotates || num_bytes > ring_bytes_ / (kNumSlots + 1)) return number % kNumSlots * slot_bytes_;
    if (next_ + num_bytes > ring_bytes_) next_ = 0;
    const std::size_t begin = next_;
    next_ += (num_bytes + kLine - 1) / kLine * kLine;
    return kNumSlots * slot_bytes_ + begin;
  }

 private:
  std::size_t slot_bytes_;
  std::size_t ring_bytes_;
  std::size_t next_ = 0;  // in the ring
};

class NodeMemory {
 public:
  static constexpr std::size_t kLeastRotating = 8 * 1024, kMostRotating = 256 * 1024;
  static constexpr std::size_t kRingBytes = std::size_t{4} << 20;  // of all ranks together

  // `slot_bytes`: of the largest chunk, whole lines.
  NodeMemory(Bootstrap& bootstrap, std::size_t slot_bytes, bool huge_pages)
      : slots_(slot_bytes, std::max(kRingBytes / static_cast<std::size_t>(bootstrap.size()) / kLine * kLine,
                                    (kNumSlots + 1) * kMostRotating)),
        memory_(bootstrap, kControlBytes + slots_.num_bytes(), huge_pages) {}

  Slots& slots() { return slots_; }
  ControlBlock& control_block(int q) const { return *reinterpret_cast<ControlBlock*>(memory_.part(q)); }
  std::byte* staging(int q) const { return memory_.part(q) + kControlBytes; }

  std::vector<WaitsFor*> waits_for(int size) const {
    std::vector<WaitsFor*> all;
    for (int q = 0; q < size; ++q) all.push_back(&control_block(q).waits_for);
    return all;
  }

  // Reads slots and ring, as much as caches hold, before anybody writes there; collective. A page that is
  // touched for the first time, and a line that no cache has, would make the first operations slow, and
  // measurements wrong.
  void warm_up(Bootstrap& bootstrap) const {
    const std::size_t share = kRingBytes / static_cast<std::size_t>(bootstrap.size());
    const std::size_t ring = slots_.num_bytes() - slots_.ring_bytes();
    for (int q = 0; q < bootstrap.size(); ++q) {
      for (std::size_t at = 0; at < share; at += kLine) {
        read(staging(q) + std::min(at, ring));
        read(staging(q) + ring + std::min(at, slots_.ring_bytes() - 1));
      }
    }
    bootstrap.everyones('\0');
  }

 private:
  static void read(const std::byte* at) { static_cast<void>(*static_cast<const volatile std::byte*>(at)); }
  static constexpr std::size_t kControlBytes = (sizeof(ControlBlock) + 4095) / 4096 * 4096;

  Slots slots_;  // where this rank's operations are; all ranks' are the same
  SharedMemory memory_;
};

}  // namespace dlscale
