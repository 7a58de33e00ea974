// How the values of several ranks become one, as the exchange needs it.
#pragma once

#include <cstddef>
#include <functional>

#include "../reduction/kernels.hpp"

namespace dlscale::network {

struct Arithmetic {
  // into[i] = sources[0][i] op sources[1][i] op ..., in this order. `into` may be one of the sources.
  // `complete`: nothing is missing any more, so an average is scaled here, and nowhere else.
  using Reduce = std::function<void(void* into, const void* const* sources, std::size_t num_sources,
                                    std::size_t count, bool complete)>;

  std::size_t width = 1;  // bytes of an element
  Reduce reduce;          // empty where nothing is reduced
  // Every element is reduced once, from the values of all ranks in order of rank: for types in which every
  // sum is rounded, or for results that depend on nothing but the ranks' values.
  bool in_rank_order = false;
};

// `scale` is applied once to every complete element, in the precision in which it was added.
Arithmetic arithmetic(Type type, Op op, double scale = 1);

}  // namespace dlscale::network
