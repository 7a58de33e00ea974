// The schedules of every operation. P ranks, S = `count` elements; a rank sends
//
//   ring                 2 (P - 1) / P S   in 2 (P - 1) steps, to its neighbour only
//   halving, doubling    2 (P - 1) / P S   in 2 log2 P steps; see `PowerOfTwo` where P is no power of two
//   recursive doubling   log2 P S          in log2 P steps; likewise
//   direct               2 (P - 1) / P S   in 2 steps of P - 1 messages; every element is reduced once
//   one-shot             (P - 1) S         in 1 step of P - 1 messages; every element is reduced once
//
// Chunk c of P is part({0, S}, c, P). All ranks end with the same bits: where two ranks compute the same
// element, they reduce the same values in the same order.
#pragma once

#include "schedule.hpp"

namespace dlscale::network {

// Every element becomes the reduction over all ranks.
Schedule ring_allreduce(Group group, std::size_t count, std::size_t max_segment);
Schedule recursive_doubling(Group group, std::size_t count, std::size_t max_segment);
Schedule halving_doubling(Group group, std::size_t count, std::size_t max_segment);
Schedule direct_allreduce(Group group, std::size_t count, std::size_t max_segment);
Schedule one_shot(Group group, std::size_t count, std::size_t max_segment);

// Chunk r becomes the reduction over all ranks on rank r; the other chunks are left half done. (P - 1) / P S
// sent.
Schedule ring_reduce_scatter(Group group, std::size_t count, std::size_t max_segment);
Schedule direct_reduce_scatter(Group group, std::size_t count, std::size_t max_segment);

// Chunk c becomes that of rank c. (P - 1) / P S sent.
Schedule ring_allgather(Group group, std::size_t count, std::size_t max_segment);
Schedule direct_allgather(Group group, std::size_t count, std::size_t max_segment);

// Every element becomes that of rank `root`, down a binomial tree: log2 P steps of S, the root sends
// ceil(log2 P) S.
Schedule tree_broadcast(Group group, std::size_t count, std::size_t max_segment, std::size_t root);

// One element, reduced by something like max: complete when all ranks have come. ceil(log2 P) steps.
Schedule dissemination(Group group);

}  // namespace dlscale::network
