// Long sequences of mixed operations, while every rank hesitates now and then: ranks overtake each other as
// far as the protocol allows, and no operation may meet the traces of another.
//
//   sequences_test [ROUNDS] [OPERATIONS] [KERNELS]
//   pauses_test likewise: ranks pause between the steps of the protocol, too
#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "node_rank.hpp"

using namespace dlscale;
using namespace dlscale::testing;

#ifdef DLSCALE_PAUSES
namespace dlscale {
// Pauses between any two steps of a hand-over, and within copies and reductions: most often none or a turn
// for other threads, sometimes longer than a rank spins.
void between_steps() {
  static std::atomic<std::uint64_t> num_threads{0};
  static thread_local std::minstd_rand chance(static_cast<unsigned>(++num_threads));
  const auto kind = chance() % 64;
  if (kind < 12) sched_yield();
  const timespec nap{0, static_cast<long>(chance() % (kind == 63 ? 500'000 : 50'000))};
  if (kind >= 60) nanosleep(&nap, nullptr);
}
}  // namespace dlscale
#endif

namespace {

Complaints g_complaints;

// The same kernels in two halves, with a pause before, between and after them.
const Kernels* g_plain = nullptr;

template <void (*Kernels::*copy)(void*, const void*, std::size_t)>
void copy_in_halves(void* to, const void* from, std::size_t num_bytes) {
  const std::size_t half = num_bytes / 2 / kLine * kLine;
  between_steps();
  (g_plain->*copy)(to, from, half);
  between_steps();
  (g_plain->*copy)(static_cast<std::byte*>(to) + half, static_cast<const std::byte*>(from) + half,
                   num_bytes - half);
  between_steps();
}

template <std::size_t type, std::size_t op>
void reduce_with_pauses(const Reduction& reduction) {
  between_steps();
  g_plain->reduce[type][op](reduction);
  between_steps();
}

template <std::size_t... type>
Kernels with_pauses(std::index_sequence<type...>) {
  return {g_plain->instruction_set,
          {{reduce_with_pauses<type, 0>, reduce_with_pauses<type, 1>, reduce_with_pauses<type, 2>}...},
          copy_in_halves<&Kernels::copy>,
          copy_in_halves<&Kernels::copy_streaming>};
}

void one_operation(NodeRank& me, const std::vector<const SharedArray*>& arrays, std::mt19937_64& chance,
                   std::uint64_t seed) {
  const auto draw = [&](std::uint64_t below) { return chance() % below; };
  const Type type = kTypes[draw(kNumTypes)];
  Op op = kOps[draw(4)];
  if (op == Op::average && is_integer(type)) op = Op::sum;
  // Equally often in the line, in the slot, in a chunk, in several chunks.
  const std::size_t largest[] = {48, 512, 2048, 9000};
  const std::size_t count = draw(largest[draw(4)] / width(type) + 1);
  const Shape shape{type, op, count, draw(17), draw(3) ? Values::tame : Values::wild};
  const std::uint64_t kind = chance();
  const std::vector<Range> blocks = blocks_of(count, me.size(), kind % 1000);
  switch (draw(9)) {
    case 0:
    case 1:
    case 2:
      return me.allreduce(shape, seed);
    case 3:
      return me.push(*arrays[kind % arrays.size()], shape, seed);
    case 4:
      return me.reduce_scatter(shape, seed, blocks, kind % 2);
    case 5:
      return me.allgather(shape, seed, blocks, kind % 2);
    case 6:
      return me.broadcast(shape, seed, static_cast<int>(kind % static_cast<std::uint64_t>(me.size())));
    case 7:
      return me.bootstrap(kind % 200, seed);
    default:
      return me.node().barrier();
  }
}

// What a rank does meanwhile for the exchange between nodes; it replaces sleeping.
void elsewhere() { sched_yield(); }

void round(int size, std::uint64_t seed, std::uint64_t num_operations, const Kernels& kernels) {
  on_ranks(size, [&](ThreadBootstrap& bootstrap) {
    std::mt19937_64 chance(seed);  // the same on all ranks
    Hesitation hesitate(seed * 100 + static_cast<std::uint64_t>(bootstrap.rank()));
    NodeOptions options;
    options.timeout_seconds = 60;
    options.one_shot_bytes = chance() % 2 ? 512 : 0;  // 0: at most 4 KiB
    options.chunk_bytes = std::size_t{64} << chance() % 7;
    const Variant large[] = {Variant::staged, Variant::streamed, Variant::single_copy};
    options.variants = {chance() % 2 ? Variant::staged : Variant::streamed};
    if (chance() % 2) options.variants.insert(options.variants.begin(), Variant::one_shot);
    for (std::uint64_t i = chance() % 3; i > 0; --i) options.variants.push_back(large[chance() % 3]);
    const bool oversubscribed = chance() % 2, moves_messages = chance() % 4 == 0;
    const SharedArray first(bootstrap, 16 * 1024, false, 1);
    const SharedArray second(bootstrap, 16 * 1024, false, 2);
    NodeRank me(bootstrap, oversubscribed, options, kernels, g_complaints);
    if (moves_messages) me.node().waiting().set_progress(elsewhere);
    for (std::uint64_t i = 0; i < num_operations; ++i) {
      hesitate();
      one_operation(me, {&first, &second}, chance, seed * 1000 + i);
    }
  });
}

// Two groups over the same threads, the second in reverse order, used by turns.
void two_groups(int size, const Kernels& kernels) {
  Meeting reversed(size);
  on_ranks(size, [&](ThreadBootstrap& bootstrap) {
    ThreadBootstrap other(reversed, size - 1 - bootstrap.rank());
    NodeOptions options;
    options.one_shot_bytes = 256;
    options.chunk_bytes = 512;
    options.variants = {Variant::staged};
    NodeRank me(bootstrap, true, options, kernels, g_complaints);
    NodeRank mirrored(other, true, options, kernels, g_complaints);
    for (std::uint64_t i = 0; i < 60; ++i) {
      NodeRank& chosen = i % 3 == 1 ? mirrored : me;
      chosen.allreduce({Type::float32, Op::sum, i * i % 700, 0, Values::tame}, i);
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t num_rounds = argc > 1 ? std::stoul(argv[1]) : 20;
  const std::uint64_t num_operations = argc > 2 ? std::stoul(argv[2]) : 200;
  g_plain = argc > 3 ? &kernels(argv[3]) : &kernels();
  const Kernels chosen = with_pauses(std::make_index_sequence<kNumTypes>());
  const int sizes[] = {2, 3, 2, 4, 5, 2, 8, 3};
  for (std::uint64_t seed = 1; seed <= num_rounds; ++seed) {
    round(sizes[seed % 8], seed, num_operations, chosen);
  }
  for (const int size : {2, 3}) two_groups(size, chosen);
  return g_complaints.verdict(std::to_string(num_rounds) + " sequences of " + std::to_string(num_operations) +
                              " operations");
}
