// Recursive doubling and recursive halving: at step k a rank exchanges with the one whose number differs in
// bit k.
#include "algorithms.hpp"

namespace dlscale::network {
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

}  // namespace dlscale::network
