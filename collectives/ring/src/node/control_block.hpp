// The layout of each rank's part of the shared memory: counters, flags and staging areas.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "rotation.hpp"
#include "waiting.hpp"

namespace dlscale {

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
  WaitsFor waits_for;
  FailureNote failure;  // rank 0's counts
};

// Part layout: control block; three areas of places: for what is offered in one shot, for slices of others,
// for finished slices.
class NodeMemory {
 public:
  // Twice what the second-level caches of two cores hold; less than the third-level one that they share.
  static constexpr std::size_t kRotatedBytes = std::size_t{4} << 20;
  static constexpr std::size_t kNumSlots = 3;  // chunks in flight

  // `one_shot_bytes`: the largest message that is offered in one shot; `chunk_bytes`: the largest chunk, all
  // ranks' slices together. Both are multiples of a line.
  NodeMemory(Bootstrap& bootstrap, std::size_t one_shot_bytes, std::size_t chunk_bytes, bool huge_pages)
      : one_shot_bytes_(one_shot_bytes),
        chunk_bytes_(chunk_bytes),
        offered_(one_shot_bytes, 2, kRotatedBytes, bootstrap.size()),
        published_(chunk_bytes, kNumSlots, kRotatedBytes, bootstrap.size()),
        results_(lines_of(2 * chunk_bytes / static_cast<std::size_t>(bootstrap.size())), kNumSlots,
                 kRotatedBytes, bootstrap.size()),
        memory_(bootstrap,
                kControlBytes + offered_.num_bytes() + published_.num_bytes() + results_.num_bytes(),
                huge_pages) {}

  std::size_t one_shot_bytes() const { return one_shot_bytes_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }

  ControlBlock& control_block(int q) const { return *reinterpret_cast<ControlBlock*>(memory_.part(q)); }
  std::vector<WaitsFor*> waits_for(int size) const {
    std::vector<WaitsFor*> all;
    for (int q = 0; q < size; ++q) all.push_back(&control_block(q).waits_for);
    return all;
  }
  // What q offers in one shot; what it publishes of chunks for the others, of each their slices one after the
  // other; its finished slices. Where in these areas the rotation says.
  std::byte* offered(int q) const { return memory_.part(q) + kControlBytes; }
  std::byte* published(int q) const { return offered(q) + offered_.num_bytes(); }
  std::byte* results(int q) const { return published(q) + published_.num_bytes(); }
  Rotation& offered_places() { return offered_; }
  Rotation& published_places() { return published_; }
  Rotation& result_places() { return results_; }

  // Reads all areas, before anybody writes there; collective. A page that is touched for the first time, and
  // a line that no cache has, would make the first operations slow, and what is measured of them wrong.
  void warm_up(Bootstrap& bootstrap) const {
    for (int q = 0; q < bootstrap.size(); ++q) {
      const auto read = [](const std::byte* area, const Rotation& places) {
        for (std::size_t at = 0; at < places.share(); at += kLine) {
          static_cast<void>(*static_cast<const volatile std::byte*>(area + at));
        }
      };
      read(offered(q), offered_);
      read(published(q), published_);
      read(results(q), results_);
    }
    bootstrap.everyones('\0');
  }

 private:
  static constexpr std::size_t kControlBytes = (sizeof(ControlBlock) + 4095) / 4096 * 4096;
  static std::size_t lines_of(std::size_t num_bytes) {
    return std::max<std::size_t>((num_bytes + kLine - 1) / kLine, 1) * kLine;
  }

  std::size_t one_shot_bytes_;
  std::size_t chunk_bytes_;
  Rotation offered_, published_, results_;  // where this rank's operations are; all ranks' are the same
  SharedMemory memory_;
};

}  // namespace dlscale
