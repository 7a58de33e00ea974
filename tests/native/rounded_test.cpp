// Float32 that travels as bfloat16: the kernels by every instruction set, and the allreduce of a node among
// other operations, while ranks hesitate, against plain arithmetic one element at a time.
//
//   rounded_test [ROUNDS]
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "node_rank.hpp"

using namespace dlscale;
using namespace dlscale::testing;

namespace {

Complaints g_complaints;

using Floats = std::vector<float>;

Floats values_of(std::size_t count, Values values, std::uint64_t seed, int rank) {
  Floats found(count);
  fill(reinterpret_cast<std::byte*>(found.data()), 0, count, Type::float32, values, seed, rank);
  return found;
}

std::string difference(const float* found, const Floats& expected) {
  return dlscale::testing::difference(reinterpret_cast<const std::byte*>(found),
                                      reinterpret_cast<const std::byte*>(expected.data()), expected.size(),
                                      Type::float32);
}

// Adds what is kept, rounds, and keeps what that takes away; `kept` may be null.
float round_plainly(float value, float* kept) {
  if (kept) value += *kept;
  std::uint16_t half = 0;
  dlscale::testing::round_plainly(reinterpret_cast<std::byte*>(&half), reinterpret_cast<std::byte*>(&value),
                                  1, Type::bfloat16);
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  float rounded = 0;
  std::memcpy(&rounded, &bits, sizeof(rounded));
  const float lost = value - rounded;
  if (kept) *kept = lost - lost == 0 ? lost : 0;
  return rounded;
}

// What every rank must hold after an allreduce, step by step; empty residuals: nothing is kept.
struct Model {
  Model(int size, std::size_t count, bool keeps)
      : offers(static_cast<std::size_t>(size), Floats(keeps ? count : 0)), results(keeps ? count : 0) {}

  Floats step(const std::vector<Floats>& everyone, float scale) {
    Floats found(everyone.front().size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      float sum = 0;
      for (std::size_t q = 0; q < everyone.size(); ++q) {
        const float value = round_plainly(everyone[q][i], offers[q].empty() ? nullptr : &offers[q][i]);
        sum = q ? sum + value : value;
      }
      if (scale != 1) sum *= scale;
      found[i] =
          everyone.size() == 1 ? everyone[0][i] : round_plainly(sum, results.empty() ? nullptr : &results[i]);
    }
    return found;
  }

  std::vector<Floats> offers;
  Floats results;
};

void check_kernels(const Kernels& k, std::size_t count, Values values, bool keeps, std::uint64_t seed) {
  const std::string what = std::string(k.instruction_set) + ", " + std::to_string(count) + " elements: ";
  constexpr int kNumRanks = 3;
  for (int own = 0; own < kNumRanks; ++own) {
    Model model(kNumRanks, count, keeps);
    std::vector<Floats> kept(kNumRanks, Floats(keeps ? count : 0));
    Floats kept_result(keeps ? count : 0);
    for (std::uint64_t step = 0; step < 2; ++step) {
      std::vector<Floats> everyone;
      for (int q = 0; q < kNumRanks; ++q) everyone.push_back(values_of(count, values, seed + step, q));
      // Streamed offers begin at a cache line.
      alignas(64) static std::uint16_t halves[kNumRanks][1024];
      std::vector<const void*> sources;
      for (int q = 0; q < kNumRanks; ++q) {
        const auto r = static_cast<std::size_t>(q);
        sources.push_back(q == own ? static_cast<const void*>(everyone[r].data()) : halves[q]);
        if (q == own) continue;
        k.round_keeping(halves[q], everyone[r].data(), keeps ? kept[r].data() : nullptr, count, q % 2);
      }
      Floats out(everyone[static_cast<std::size_t>(own)]), widened(count);
      sources[static_cast<std::size_t>(own)] = out.data();  // in place
      std::vector<std::uint16_t> rounded(count);
      k.reduce_rounded({out.data(), rounded.data(), sources.data(), static_cast<std::size_t>(own),
                        keeps ? kept[static_cast<std::size_t>(own)].data() : nullptr,
                        keeps ? kept_result.data() : nullptr, kNumRanks, count, 1.0 / 3});
      k.from_bfloat16(widened.data(), rounded.data(), count);
      const Floats expected = model.step(everyone, static_cast<float>(1.0 / 3));
      std::string wrong = difference(out.data(), expected);
      if (wrong.empty()) wrong = difference(widened.data(), expected);
      if (wrong.empty() && keeps) wrong = difference(kept_result.data(), model.results);
      for (std::size_t q = 0; q < kNumRanks && keeps && wrong.empty(); ++q) {
        wrong = difference(kept[q].data(), model.offers[q]);
      }
      g_complaints.add_if(!wrong.empty(), what + wrong);
    }
  }
}

// Two buckets by turns, a plain operation now and then, and other ways of moving from time to time.
void on_a_node(int size, bool keeps, std::uint64_t seed) {
  const std::vector<std::vector<CopyVariant>> ways = {
      {{1024, false, false}}, {{2048, true, false}, {1024, false, true}, {64, false, false}}};
  on_ranks(size, [&](ThreadBootstrap& bootstrap) {
    NodeOptions options;
    options.num_cores = 2;
    options.least_shared_bytes = 128;
    options.timeout_seconds = 60;
    options.one_shot_bytes = 512;
    options.variants = ways[1];
    NodeRank me(bootstrap, seed % 2, options, kernels(), g_complaints);
    std::mt19937_64 chance(seed);  // the same on all ranks
    Hesitation hesitate(seed * 31 + static_cast<std::uint64_t>(me.rank()));
    const std::size_t counts[] = {1 + chance() % 40, 1 + chance() % 3000};
    std::vector<Model> models = {{size, counts[0], keeps}, {size, counts[1], keeps}};
    std::vector<Floats> offers, results;
    for (const std::size_t count : counts) {
      offers.emplace_back(count);
      results.emplace_back(count);
    }
    for (std::uint64_t step = 0; step < 30; ++step) {
      const std::size_t bucket = chance() % 2, count = counts[bucket];
      const Values values = chance() % 4 ? Values::tame : Values::wild;
      std::vector<Floats> everyone;
      for (int q = 0; q < size; ++q) everyone.push_back(values_of(count, values, seed + step, q));
      Floats data = everyone[static_cast<std::size_t>(me.rank())];
      Rounding rounding;
      if (keeps) rounding = {offers[bucket].data(), results[bucket].data()};
      hesitate();
      me.node().allreduce_rounded(data.data(), count, 1.0 / size, rounding);
      const std::string wrong =
          difference(data.data(), models[bucket].step(everyone, static_cast<float>(1.0 / size)));
      g_complaints.add_if(!wrong.empty(), "rank " + std::to_string(me.rank()) + " of " +
                                              std::to_string(size) + ", step " + std::to_string(step) + ": " +
                                              wrong);
      hesitate();
      if (chance() % 3 == 0) {
        me.allreduce({Type::float32, Op::sum, 1 + chance() % 2000, 3, Values::tame}, seed + step);
      }
      if (chance() % 5 == 0) me.node().tune(chance() % 513, ways[chance() % 2]);
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int num_rounds = argc > 1 ? std::atoi(argv[1]) : 6;
  std::uint64_t seed = 1;
  for (const char* name : {"portable", "avx2", "avx512"}) {
    const Kernels* k = nullptr;
    try {
      k = &kernels(name);
    } catch (const std::invalid_argument&) {
      continue;  // not on this CPU
    }
    for (const std::size_t count : {0u, 1u, 15u, 16u, 63u, 64u, 65u, 300u, 1000u}) {
      for (int way = 0; way < 4; ++way) {
        check_kernels(*k, count, way % 2 ? Values::wild : Values::tame, way / 2, ++seed);
      }
    }
  }
  for (int round = 0; round < num_rounds; ++round) {
    for (int size = 1; size <= 5; ++size) on_a_node(size, (round + size) % 2, ++seed);
  }
  return g_complaints.verdict("rounded, " + std::to_string(num_rounds) + " rounds");
}
