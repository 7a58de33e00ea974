// How the values of several ranks become one.
#pragma once

#include "../reduction/kernels.hpp"

namespace dlscale::network {

struct Arithmetic {
  Type type = Type::int32;
  Op op = Op::max;
  double scale = 1;  // applied once to every complete element, in the precision in which it was added

  // Every sum is rounded, so an element is reduced once, from the values of all ranks in order of rank.
  bool in_rank_order() const { return width(type) == 2; }
};

}  // namespace dlscale::network
