// The ways in which a message can be moved inside a node. All give the same bits; which is fastest depends on
// the size and on how far apart the caches are.
#pragma once

#include <cstddef>
#include <string>

namespace dlscale {

enum class Way {
  one_shot,     // everybody offers all, everybody adds all: see Small
  staged,       // slices pass through shared staging areas: see Staged
  single_copy,  // the kernel copies between the ranks' own memory: see SingleCopy
};

struct CopyVariant {
  std::size_t chunk_bytes;  // all owners' slices together
  bool prefetch;            // staged: fetch the next lines into the cache while copying
  bool streaming;           // staged: published slices and results bypass the caches
  Way way = Way::staged;
  std::size_t least_bytes = 0;  // smaller messages are not tried, nor larger ones
  std::size_t most_bytes = ~std::size_t{0};
  bool rotates = false;  // one-shot, staged: shared memory is used again as late as there is room (Rotation)
};

inline std::string in_words(const CopyVariant& variant) {
  const std::string kib = std::to_string(variant.chunk_bytes / 1024) + " KiB";
  const std::string rotating = variant.rotates ? ", rotating" : "";
  if (variant.way == Way::one_shot) return "one-shot" + rotating;
  if (variant.way == Way::single_copy) return "single copy, " + kib;
  return "staged, " + kib + (variant.prefetch ? ", fetched ahead" : "") +
         (variant.streaming ? ", past the caches" : "") + rotating;
}

}  // namespace dlscale
