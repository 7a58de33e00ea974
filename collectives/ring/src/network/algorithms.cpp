#include "algorithms.hpp"

namespace dlscale::network {

// ---- ring ----
//
// Ranks 0 .. P - 1 sit on a clock face, and every message goes from a rank to the next one, clockwise.
//
// First lap (reduce-scatter), P - 1 steps: every chunk walks once around, and each rank reduces its own
// values in as it passes. Chunk c starts at rank c + 1, so that it ends, complete, at rank c. Second lap
// (allgather): the complete chunks walk on and are stored. What a rank receives at one step is what it sends
// at the next, segment by segment, so that while one is reduced others travel.

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

// ---- direct ----
//
// Everybody talks to everybody: for element types whose every addition rounds (the owner reduces all ranks'
// values of an element at once, in order of rank), and for small messages.
//
// At step t = 1 .. P - 1 a rank sends to the one t places ahead and receives from the one t places behind: no
// two ranks send to the same one at the same step.

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

// ---- recursive doubling and halving ----
//
// Recursive doubling and recursive halving: at step k a rank exchanges with the one whose number differs in
// bit k.

namespace {

// Where P is no power of two, the surplus over the last power Q is added before and gets the result after: of
// the first 2 (P - Q) ranks the odd ones (`guest`) send everything to their left neighbour (`host`) and later
// receive the result, so both send S elements more, and the Q that are left are renumbered without gaps.
class PowerOfTwo {
 public:
  explicit PowerOfTwo(Group group) : rank_(group.rank) {
    while (2 * num_left_ <= group.size) num_left_ *= 2;
    num_pairs_ = group.size - num_left_;
  }

  std::size_t num_left() const { return num_left_; }
  bool is_guest() const { return paired() && rank_ % 2 == 1; }
  bool is_host() const { return paired() && rank_ % 2 == 0; }
  std::size_t number() const { return paired() ? rank_ / 2 : rank_ - num_pairs_; }
  std::size_t rank_of(std::size_t number) const {
    return number < num_pairs_ ? 2 * number : number + num_pairs_;
  }

  // Calls `exchange(number of this rank, completes)` between adding the guest's values and sending it the
  // result; `completes` says whether the last reduction of `exchange` is the last of all.
  template <typename Exchange>
  void around(Writer& writer, Range all, Exchange exchange) const {
    if (is_guest()) {
      writer.send(rank_ - 1, all);
      writer.receive(rank_ - 1, all, Arrival::stored);
      return;
    }
    if (is_host()) writer.receive(rank_ + 1, all, Arrival::reduced, num_left_ == 1);
    exchange(number());
    if (is_host()) writer.send(rank_ + 1, all);
  }

 private:
  bool paired() const { return rank_ < 2 * num_pairs_; }

  std::size_t rank_;
  std::size_t num_left_ = 1;
  std::size_t num_pairs_;
};

}  // namespace

// Both partners reduce the same two values, the lower rank's first.
Schedule recursive_doubling(Group group, std::size_t count, std::size_t max_segment) {
  Writer writer(max_segment);
  const PowerOfTwo ranks(group);
  const Range all = {0, count};
  ranks.around(writer, all, [&](std::size_t number) {
    for (std::size_t bit = 1; bit < ranks.num_left(); bit *= 2) {
      const std::size_t partner = ranks.rank_of(number ^ bit);
      writer.send(partner, all);
      writer.receive(partner, all, Arrival::reduced, 2 * bit == ranks.num_left());
    }
  });
  return writer.finish();
}

// Partners share a range, and each keeps one half of it: the neighbours in number the halves of all elements,
// and so on. Then the same way back: each gets from its partner the half that it gave away.
Schedule halving_doubling(Group group, std::size_t count, std::size_t max_segment) {
  Writer writer(max_segment);
  const PowerOfTwo ranks(group);
  const Range all = {0, count};
  ranks.around(writer, all, [&](std::size_t number) {
    std::vector<Range> kept = {all};
    for (std::size_t bit = 1; bit < ranks.num_left(); bit *= 2) {
      const std::size_t partner = ranks.rank_of(number ^ bit);
      const std::size_t half = (number & bit) == 0 ? 0 : 1;
      const Range whole = kept.back();
      kept.push_back(part(whole, half, 2));
      writer.send(partner, part(whole, 1 - half, 2));
      writer.receive(partner, kept.back(), Arrival::reduced, 2 * bit == ranks.num_left());
    }
    for (std::size_t bit = ranks.num_left() / 2; bit > 0; bit /= 2) {
      const std::size_t partner = ranks.rank_of(number ^ bit);
      const Range mine = kept.back();
      kept.pop_back();
      const Range whole = kept.back();
      const Range theirs =
          mine.begin == whole.begin ? Range{mine.end, whole.end} : Range{whole.begin, mine.begin};
      writer.send(partner, mine);
      writer.receive(partner, theirs, Arrival::stored);
    }
  });
  return writer.finish();
}

// ---- broadcast and barrier ----

// In places counted from the root: a place gets everything from the one without its highest bit, and hands it
// to those with one higher bit more.
Schedule tree_broadcast(Group group, std::size_t count, std::size_t max_segment, std::size_t root) {
  Writer writer(max_segment);
  const std::size_t place = (group.rank + group.size - root) % group.size;
  const Range all = {0, count};
  auto rank_at = [&](std::size_t other) { return (other + root) % group.size; };
  std::size_t bit = 1;
  while (2 * bit <= place) bit *= 2;
  if (place > 0) {
    writer.receive(rank_at(place - bit), all, Arrival::stored);
    bit *= 2;
  }
  for (; place + bit < group.size; bit *= 2) writer.send(rank_at(place + bit), all);
  return writer.finish();
}

// Who has heard of a ranks knows of 2 a after the next step, for it hears from one that has heard of a
// others.
Schedule dissemination(Group group) {
  Writer writer(1);
  const Range flag = {0, 1};
  for (std::size_t distance = 1; distance < group.size; distance *= 2) {
    writer.send((group.rank + distance) % group.size, flag);
    writer.receive((group.rank + group.size - distance) % group.size, flag, Arrival::reduced,
                   2 * distance >= group.size);
  }
  return writer.finish();
}

}  // namespace dlscale::network
