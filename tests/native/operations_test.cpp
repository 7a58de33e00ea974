// Every operation of a node by every path, for every type: one after the other.
//
//   operations_test [MOST_RANKS] [KERNELS]       kernels: portable, avx2, avx512; default: the best
#include <set>
#include <string>
#include <vector>

#include "node_rank.hpp"

using namespace dlscale;
using namespace dlscale::testing;

namespace {

Complaints g_complaints;

// Small areas, so that few elements are many chunks.
NodeOptions small_areas(std::vector<CopyVariant> variants) {
  NodeOptions options;
  options.num_cores = 1 + variants.size() % 2;
  options.least_shared_bytes = 256;
  options.timeout_seconds = 60;
  options.one_shot_bytes = 512;
  options.variants = std::move(variants);
  return options;
}

// Elements at and around every switch: inline, one-shot, pieces of chunks, several chunks.
std::set<std::size_t> counts(Type type, int size, const NodeOptions& options) {
  const std::size_t p = static_cast<std::size_t>(size), element = width(type);
  const std::size_t is_inline = InlineLine::kPayloadBytes / element;
  const std::size_t one_shot = options.one_shot_bytes / element;
  const std::size_t chunk = options.variants.front().chunk_bytes / element;
  return {0,         1,         p - 1,         p,         p + 1,         12,
          13,        is_inline, is_inline + 1, one_shot,  one_shot + 1,  one_shot + p,
          chunk - 1, chunk,     chunk + 1,     3 * chunk, 3 * chunk + 5, 6 * chunk + chunk / 2 + 3};
}

void every_allreduce(NodeRank& me, const SharedArray& array, const NodeOptions& options) {
  std::uint64_t seed = 1;
  for (const Type type : kTypes) {
    for (const Op op : kOps) {
      if (op == Op::average && is_integer(type)) continue;
      for (const std::size_t count : counts(type, me.size(), options)) {
        const Values values = seed % 3 ? Values::tame : Values::wild;
        me.allreduce({type, op, count, seed * 7 % 23, values}, seed);
        me.push(array, {type, op, count, seed * 5 % 23, values}, seed + 1);
        seed += 2;
      }
    }
  }
}

void every_other_operation(NodeRank& me, const NodeOptions& options) {
  std::uint64_t seed = 1;
  for (const Type type : {Type::float32, Type::bfloat16, Type::int64}) {
    for (const std::size_t count : counts(type, me.size(), options)) {
      for (int kind = 0; kind < 3; ++kind) {
        const Op op = type == Type::int64 ? Op::max : Op::average;
        const Shape shape{type, op, count, seed * 7 % 23, seed % 3 ? Values::tame : Values::wild};
        const std::vector<Range> blocks = blocks_of(count, me.size(), seed);
        me.reduce_scatter(shape, seed, blocks, seed % 2);
        me.allgather(shape, seed, blocks, seed % 3 == 0);
        me.broadcast(shape, seed, static_cast<int>(seed % static_cast<std::size_t>(me.size())));
        if (seed % 5 == 0) me.node().barrier();
        me.allgather_inline(seed % (InlineLine::kPayloadBytes + 1), seed);
        ++seed;
      }
    }
  }
}

// An odd number of bytes has no type that is narrow enough.
void odd_broadcasts(NodeRank& me) {
  for (const std::size_t num_bytes : {1u, 3u, 47u, 999u, 4097u}) {
    std::vector<std::byte> data(num_bytes, static_cast<std::byte>(me.rank()));
    const int root = static_cast<int>(num_bytes) % me.size();
    me.node().broadcast(data.data(), num_bytes, root);
    g_complaints.add_if(data != std::vector<std::byte>(num_bytes, static_cast<std::byte>(root)),
                        "broadcast of " + std::to_string(num_bytes) + " bytes");
  }
}

void on_a_node(int size, bool oversubscribed, const NodeOptions& options, const Kernels& kernels) {
  on_ranks(size, [&](ThreadBootstrap& bootstrap) {
    const SharedArray array(bootstrap, 64 * 1024, {}, 1);
    NodeRank me(bootstrap, oversubscribed, options, kernels, g_complaints);
    g_complaints.add_if(!me.node().obstacle_to_single_copies().empty(),
                        "no single copies: " + me.node().obstacle_to_single_copies());
    every_allreduce(me, array, options);
    every_other_operation(me, options);
    odd_broadcasts(me);
  });
}

// The areas that programs get, at sizes beyond them.
void usual_options(int size, const Kernels& kernels) {
  on_ranks(size, [&](ThreadBootstrap& bootstrap) {
    NodeOptions options;
    options.timeout_seconds = 60;
    options.num_cores = 3;
    const SharedArray array(bootstrap, 4 << 20, {}, 1);
    NodeRank me(bootstrap, size > 2, options, kernels, g_complaints);
    std::uint64_t seed = 1;
    for (const std::size_t count : {8192u, 8193u, 100'003u, 700'001u, 700'001u, 700'001u}) {
      me.allreduce({Type::float32, Op::average, count, seed % 3, Values::tame}, seed);
      me.push(array, {Type::float32, Op::sum, count, seed % 3, Values::tame}, seed);
      ++seed;
    }
    const Shape large{Type::float32, Op::sum, 700'001, 1, Values::tame};
    const std::vector<Range> blocks = blocks_of(large.count, size, 0);
    me.reduce_scatter(large, seed, blocks, true);
    me.allgather(large, seed, blocks, true);
    me.broadcast(large, seed, size - 1);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int most_ranks = argc > 1 ? std::stoi(argv[1]) : 8;
  const Kernels& chosen = argc > 2 ? kernels(argv[2]) : kernels();
  const std::vector<std::vector<CopyVariant>> ways = {
      {{1024, false, false}},
      {{1024, true, false}},
      {{1024, false, true}},
      // Tried in turn: see OnlineTuner.
      {{2048, true, true}, {1024, false, false}, {64, false, true}},
      {{1024, false, false}, {1024, false, false, Way::single_copy}},
      {{1024, false, false}, {64, false, false, Way::single_copy}, {0, false, false, Way::one_shot}},
  };
  for (const int size : {1, 2, 3, 4, 5, 8}) {
    if (size > most_ranks) break;
    for (std::size_t way = 0; way < ways.size(); ++way) {
      const bool oversubscribed = (way + static_cast<std::size_t>(size)) % 2 != 0 || size > 4;
      on_a_node(size, oversubscribed, small_areas(ways[way]), chosen);
    }
  }
  for (const int size : {1, 2, 3}) usual_options(size, chosen);
  return g_complaints.verdict(std::string("every operation, kernels ") + chosen.instruction_set);
}
