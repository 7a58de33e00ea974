// Ranks 0 .. P - 1 sit on a clock face, and every message goes from a rank to the next one, clockwise.
//
// First lap (reduce-scatter), P - 1 steps: every chunk walks once around, and each rank reduces its own
// values in as it passes. Chunk c starts at rank c + 1, so that it ends, complete, at rank c. Second lap
// (allgather): the complete chunks walk on and are stored. What a rank receives at one step is what it sends
// at the next, segment by segment, so that while one is reduced others travel.
#include "algorithms.hpp"

namespace dlscale::network {
namespace {

struct Clock {
  Group group;
  std::size_t count;

  std::size_t next() const { return (group.rank + 1) % group.size; }
  std::size_t previous() const { return (group.rank + group.size - 1) % group.size; }
  // The chunk that lies `num_steps` ranks back, at most 2 P.
  Range chunk_back(std::size_t num_steps) const {
    return part({0, count}, (group.rank + 2 * group.size - num_steps) % group.size, group.size);
  }

  void reduce_scatter(Writer& writer) const {
    for (std::size_t step = 0; step + 1 < group.size; ++step) {
      writer.send(next(), chunk_back(step + 1));
      writer.receive(previous(), chunk_back(step + 2), Arrival::reduced, step + 2 == group.size);
    }
  }

  void allgather(Writer& writer) const {
    for (std::size_t step = 0; step + 1 < group.size; ++step) {
      writer.send(next(), chunk_back(step));
      writer.receive(previous(), chunk_back(step + 1), Arrival::stored);
    }
  }
};

}  // namespace

Schedule ring_allreduce(Group group, std::size_t count, std::size_t max_segment) {
  Writer writer(max_segment);
  Clock{group, count}.reduce_scatter(writer);
  Clock{group, count}.allgather(writer);
  return writer.finish();
}

Schedule ring_reduce_scatter(Group group, std::size_t count, std::size_t max_segment) {
  Writer writer(max_segment);
  Clock{group, count}.reduce_scatter(writer);
  return writer.finish();
}

Schedule ring_allgather(Group group, std::size_t count, std::size_t max_segment) {
  Writer writer(max_segment);
  Clock{group, count}.allgather(writer);
  return writer.finish();
}

}  // namespace dlscale::network
