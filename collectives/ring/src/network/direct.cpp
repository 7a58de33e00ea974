// Everybody talks to everybody: for element types whose every addition rounds (the owner reduces all ranks'
// values of an element at once, in order of rank), and for small messages.
//
// At step t = 1 .. P - 1 a rank sends to the one t places ahead and receives from the one t places behind: no
// two ranks send to the same one at the same step.
#include "algorithms.hpp"

namespace dlscale::network {
namespace {

struct Star {
  Group group;
  std::size_t count;
  std::size_t max_segment;

  std::size_t ahead(std::size_t t) const { return (group.rank + t) % group.size; }
  std::size_t behind(std::size_t t) const { return (group.rank + group.size - t) % group.size; }
  Range chunk(std::size_t rank) const { return part({0, count}, rank, group.size); }
  // All chunks have equally many segments, so that ranks agree on what belongs together.
  std::size_t num_segments() const {
    return chunk(0).size() == 0 ? 0 : (chunk(0).size() - 1) / max_segment + 1;
  }

  void reduce_scatter(Writer& writer) const {
    for (std::size_t segment = 0; segment < num_segments(); ++segment) {
      auto piece = [&](std::size_t rank) { return part(chunk(rank), segment, num_segments()); };
      for (std::size_t t = 1; t < group.size; ++t) writer.send(ahead(t), piece(ahead(t)));
      reduce_from_all(writer, piece(group.rank));
    }
  }

  void allgather(Writer& writer) const {
    for (std::size_t segment = 0; segment < num_segments(); ++segment) {
      auto piece = [&](std::size_t rank) { return part(chunk(rank), segment, num_segments()); };
      for (std::size_t t = 1; t < group.size; ++t) {
        writer.send(ahead(t), piece(group.rank));
        writer.receive(behind(t), piece(behind(t)), Arrival::stored);
      }
    }
  }

  void reduce_from_all(Writer& writer, Range range) const {
    for (std::size_t t = 1; t < group.size; ++t) {
      const bool last = t + 1 == group.size;
      writer.receive(behind(t), range, last ? Arrival::reduced : Arrival::held, last);
    }
  }
};

}  // namespace

Schedule direct_allreduce(Group group, std::size_t count, std::size_t max_segment) {
  Writer writer(max_segment);
  const Star star = {group, count, max_segment};
  star.reduce_scatter(writer);
  star.allgather(writer);
  return writer.finish();
}

Schedule direct_reduce_scatter(Group group, std::size_t count, std::size_t max_segment) {
  Writer writer(max_segment);
  Star{group, count, max_segment}.reduce_scatter(writer);
  return writer.finish();
}

Schedule direct_allgather(Group group, std::size_t count, std::size_t max_segment) {
  Writer writer(max_segment);
  Star{group, count, max_segment}.allgather(writer);
  return writer.finish();
}

Schedule one_shot(Group group, std::size_t count, std::size_t max_segment) {
  Writer writer(max_segment);
  const Star star = {group, count, max_segment};
  const std::size_t num_segments = count == 0 ? 0 : (count - 1) / max_segment + 1;
  for (std::size_t segment = 0; segment < num_segments; ++segment) {
    const Range range = part({0, count}, segment, num_segments);
    for (std::size_t t = 1; t < group.size; ++t) writer.send(star.ahead(t), range);
    star.reduce_from_all(writer, range);
  }
  return writer.finish();
}

}  // namespace dlscale::network
