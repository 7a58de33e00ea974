// The exchange of a list of arrays over a collective: large ones where they lie, small ones packed together.
//
// Vocabulary: a *piece* is one gradient, read at `source` and left as the mean over ranks at `target` (often
// the same address). *Staging* is an area into which pieces are copied end to end until it is full, so that
// one call of the collective carries many; a piece may be cut by its end. The calls depend on sizes and types
// alone, never on addresses, so they are the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "../c_interface.hpp"

namespace dlscale {

struct Piece {
  const std::byte* source;
  std::byte* target;
  std::size_t num_bytes;
  DlscaleType type;
};

struct Staging {
  std::byte* data;
  std::size_t num_bytes;  // a multiple of 8
  // Pieces of at least so many bytes do not pass through it.
  std::size_t direct_bytes;
};

std::size_t width(DlscaleType type);

// Replaces each piece by its mean over ranks. Throws std::runtime_error with the collective's own words.
void average(const DlscaleCollective& collective, const Staging& staging, const std::vector<Piece>& pieces);

}  // namespace dlscale
