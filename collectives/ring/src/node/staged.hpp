// Large messages in ordinary memory: slices pass through shared staging areas, three chunks in flight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../reduction/kernels.hpp"
#include "control_block.hpp"
#include "slices.hpp"

namespace dlscale {

// Each chunk goes through three stages:
//   publish  copy the others' slices to where their owners can read them;
//   reduce   sum the own slice over all ranks, in rank order, into the own output and a result area;
//   collect  copy the others' finished slices from their result areas.
// While chunk c is published, c - 1 is reduced and c - 2 collected, so that a wait is usually over before it
// begins.
// Every element is summed once, in rank order: the bits depend neither on the chunk size nor on the variant.
class Staged {
 public:
  struct Job {
    const std::byte* input;
    std::byte* output;
    std::size_t input_begin = 0;  // the element that the input begins with, and the output
    std::size_t output_begin = 0;
    const std::byte* in(Range range) const { return input + (range.begin - input_begin) * width(type); }
    std::byte* out(Range range) const { return output + (range.begin - output_begin) * width(type); }

    Type type;
    Op op;
    double scale = 1.0;
    bool streaming = false;  // published slices and results bypass the caches
    bool rotates = false;    // shared memory is used again as late as there is room: see Rotation
  };

  Staged(NodeMemory& memory, Waiting& waiting, const Kernels& kernels, int rank, int size)
      : memory_(memory),
        waiting_(waiting),
        kernels_(kernels),
        rank_(rank),
        size_(size),
        brought_(static_cast<std::size_t>(size)) {}

  void allreduce(const Job& job, const Slices& slices);
  // Only the own slices of the output are written.
  void reduce_scatter(const Job& job, const Slices& slices);
  // The own slices of the input are handed to all; own slices of the output are written where it is another
  // place than the input.
  void allgather(const Job& job, const Slices& slices);

 private:
  void put(const Job& job, std::byte* to, Range range) const;
  void take(const Job& job, Range range, const std::byte* from) const;
  void publish(const Job& job, const Slices& slices, std::size_t chunk);
  void reduce_own(const Job& job, const Slices& slices, std::size_t chunk, bool for_others);
  void store_own(const Job& job, const Slices& slices, std::size_t chunk);
  void collect(const Job& job, const Slices& slices, std::size_t chunk);
  void begin(const Job& job, const Slices& slices, std::size_t kind);
  void wait_for_published(std::size_t chunk, int q);
  void wait_until_reduced(std::uint64_t num_chunks);
  static std::size_t slice_bytes_of(const Job& job, const Slices& slices, std::size_t chunk);
  void place(const Job& job, const Slices& slices, std::size_t chunk, bool publishes, bool finishes);
  std::byte* published(int q, std::uint64_t number) const {
    return memory_.published(q) + places_[number % NodeMemory::kNumSlots].published;
  }
  std::byte* result(int q, std::uint64_t number) const {
    return memory_.results(q) + places_[number % NodeMemory::kNumSlots].result;
  }
  ControlBlock& control_block(int q) const { return memory_.control_block(q); }

  NodeMemory& memory_;
  Waiting& waiting_;
  const Kernels& kernels_;
  int rank_;
  int size_;
  std::vector<const void*> brought_;  // each rank's elements of the slice that is reduced
  struct Places {
    std::size_t published, result;
  };
  std::array<Places, NodeMemory::kNumSlots> places_{};  // of the last chunks
  std::uint64_t num_operations_ = 0;
  std::uint32_t tag_ = 0;                 // of the operation under way
  std::uint64_t num_chunks_ = 0;          // of all operations so far: numbers never repeat
  std::uint64_t num_reduced_by_all_ = 0;  // known so far
};

}  // namespace dlscale
