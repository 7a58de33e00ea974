// Broadcast and barrier.
#include "algorithms.hpp"

namespace dlscale::network {

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
