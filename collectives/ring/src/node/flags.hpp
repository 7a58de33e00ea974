// The flags that ranks of a node raise for each other in shared memory, and the rules by which data changes
// hands.
//
// A flag is a counter with one writer, its owner. A hand-over is always the same four steps:
//
//   owner   writes plain bytes (payload, tag, word), then stores the counter with release order;
//   reader  loads the counter with acquire order until it is high enough, then reads those bytes.
//
// The release store orders all earlier writes of the owner before it, and the acquire load that sees its
// value, or a later one of the same owner, orders the reader's reads behind it. Counters only grow by the
// operations of their owner, over 64 bits, so that no value comes twice: a reader cannot take an old value
// for a new one (no ABA), and nothing has to be reset. What remains to be argued is reuse: when the owner may
// write the same bytes again. Each class says so for its bytes: Inline, Staged, Rendezvous, OnlineTuner.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "../reduction/types.hpp"

namespace dlscale {

// A test may define it, to make a rank pause between any two steps of a hand-over.
#ifdef DLSCALE_PAUSES
void between_steps();
#else
inline void between_steps() {}
#endif

constexpr std::size_t kLine = 64;
constexpr std::size_t kNumSlots = 5;  // of staging, see Staged

// `num_sleepers`: ranks that sleep until the value changes. `tag`: what the owner's operation is.
struct Flag {
  std::atomic<std::uint64_t> value;
  std::atomic<std::uint32_t> num_sleepers;
  std::atomic<std::uint32_t> tag;
};

// A flag with what is read along with it. 128 bytes, since CPUs fetch lines in pairs.
struct alignas(128) Counter : Flag {
  std::uint64_t word;
  std::atomic<std::uint32_t> tags[kNumSlots];
};
static_assert(sizeof(Counter) == 128 && sizeof(Flag) + 8 + sizeof(Counter::tags) <= kLine,
              "one line is read");

// A message that travels in the line of its own flag: one cache miss instead of two.
struct alignas(kLine) InlineLine : Flag {
  static constexpr std::size_t kPayloadBytes = 48;
  std::byte payload[kPayloadBytes];
};
static_assert(sizeof(InlineLine) == kLine, "payload and flag share one line");

// The first failure in a node, for all its ranks: 0, or local rank + 1 and a cause. Whoever changes the code
// from 0 to kBeingWritten alone writes the text, and then stores the final code with release order; the text
// never changes again. Causes that need no text are stored at once.
struct alignas(128) FailureNote {
  static constexpr std::uint32_t kBeingWritten = 0xffffffff;
  static constexpr std::size_t kTextBytes = 400;
  std::atomic<std::uint32_t> code;
  char text[kTextBytes];
};

// Whom a rank has been waiting for, longer than a moment: nobody (0), a local rank (+ 1), or other nodes. A
// hint for messages only: nothing is handed over, so relaxed order is enough.
struct alignas(128) WaitsFor {
  static constexpr std::uint32_t kOtherNodes = 0xffffff;
  std::atomic<std::uint32_t> who;
};

// An operation in 32 bits, for ranks to compare: a difference means that they disagree.
inline std::uint32_t tag_of(Operation operation, std::size_t count, Type type, Op op) {
  std::uint64_t mixed = (count * 8 + static_cast<std::size_t>(type)) * 8 + static_cast<std::size_t>(op);
  mixed = (mixed * 8 + static_cast<std::size_t>(operation)) * 0x9e3779b97f4a7c15u;  // Fibonacci hashing: the
  return static_cast<std::uint32_t>(mixed >> 32);  // upper bits depend on all
}

}  // namespace dlscale
