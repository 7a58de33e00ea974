// The element types of the engine and how they are added.
#pragma once

#include <cstddef>

namespace dlscale {

struct Element {
  std::size_t width;  // bytes
  // into[0, count) += from[0, count); the two do not overlap. Integers wrap, as MPI's sums do in practice.
  void (*add)(void* into, const void* from, std::size_t count);
};

extern const Element kFloat32;
extern const Element kFloat64;
extern const Element kInt32;
extern const Element kInt64;

}  // namespace dlscale
