// What every operation of an exchange must leave behind, on whatever transport.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "network/exchange.hpp"

namespace dlscale::network {

struct Variant {
  std::string name;
  Tuning tuning;
};

// Every algorithm, with small segments and windows, so that small buffers are many messages.
inline std::vector<Variant> every_variant(std::size_t num_ranks) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  Tuning none = default_tuning(num_ranks);
  none.one_shot_bytes = none.recursive_doubling_bytes = none.halving_doubling_bytes = 0;
  none.direct_bytes = 0;
  std::vector<Variant> variants = {{"default", default_tuning(num_ranks)}};
  for (const std::size_t segment : {std::size_t{24}, std::size_t{4096}}) {
    none.segments = {{kAll, segment}};
    none.direct_segment_bytes = segment;
    for (const std::size_t window : {1, 3}) {
      none.window = window;
      const std::string how = " " + std::to_string(segment) + " " + std::to_string(window);
      Tuning tuning = none;
      variants.push_back({"ring" + how, tuning});
      tuning.direct_bytes = tuning.recursive_doubling_bytes = kAll;
      variants.push_back({"recursive doubling, direct" + how, tuning});
      tuning.recursive_doubling_bytes = 0;
      tuning.halving_doubling_bytes = kAll;
      variants.push_back({"halving and doubling" + how, tuning});
      tuning.one_shot_bytes = kAll;
      variants.push_back({"one-shot" + how, tuning});
    }
  }
  return variants;
}

// Runs what was started to its end; `between` is called after every step that moved nothing.
inline void finish(Exchange& exchange, const std::function<void()>& between) {
  while (!exchange.done()) {
    if (!exchange.progress()) between();
  }
}

class Checks {
 public:
  Checks(Exchange& exchange, Group group, std::function<void()> between)
      : exchange_(exchange), group_(group), between_(std::move(between)) {}

  void all(const Variant& variant, std::size_t count) {
    where_ = variant.name + ", " + std::to_string(count) + " elements, rank " + std::to_string(group_.rank) +
             " of " + std::to_string(group_.size);
    exchange_.tune(variant.tuning);
    integers(count);
    floats(count);
    averages(count);
    low_precision(count);
    reduce_scatter(count);
    allgather(count);
    broadcast(count);
    exchange_.start_barrier();
    finish(exchange_, between_);
  }

  // Every rank's bits, computed alike everywhere: no sum of these is exact.
  static float uneven(std::size_t rank, std::size_t i) {
    return 0.1F + static_cast<float>((i * 7 + rank * 13) % 101) / 3.0F;
  }

 private:
  template <typename T>
  std::byte* bytes(std::vector<T>& values) const {
    return reinterpret_cast<std::byte*>(values.data());
  }

  void expect(bool holds, const char* what) const {
    if (!holds) throw std::runtime_error(std::string(what) + ": " + where_);
  }

  void allreduce(std::byte* data, std::size_t count, const Arithmetic& arithmetic) {
    exchange_.start_allreduce(data, count, arithmetic);
    finish(exchange_, between_);
  }

  void integers(std::size_t count) {
    std::vector<std::int64_t> values(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      // One byte for each of up to 8 ranks: what was dropped or doubled cannot cancel out.
      values[i] = std::int64_t{1} << (8 * (group_.rank % 8));
      for (std::size_t r = 0; r < group_.size; ++r) expected[i] += std::int64_t{1} << (8 * (r % 8));
    }
    allreduce(bytes(values), count, {Type::int64, Op::sum});
    expect(values == expected, "sum of integers");
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<std::int64_t>((i + group_.rank) % group_.size);
    allreduce(bytes(values), count, {Type::int64, Op::max});
    expect(values == std::vector<std::int64_t>(count, static_cast<std::int64_t>(group_.size - 1)), "maximum");
  }

  // All ranks end with rank 0's bits, which are near the sum.
  void floats(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = uneven(group_.rank, i);
    allreduce(bytes(values), count, {Type::float32, Op::sum});
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (std::size_t r = 0; r < group_.size; ++r) sum += static_cast<double>(uneven(r, i));
      expect(values[i] > sum * (1 - 1e-5) && values[i] < sum * (1 + 1e-5), "sum of floats");
    }
    std::vector<float> of_rank_0 = values;
    exchange_.start_broadcast(bytes(of_rank_0), count * sizeof(float), 0);
    finish(exchange_, between_);
    expect(of_rank_0.empty() || std::memcmp(of_rank_0.data(), values.data(), count * sizeof(float)) == 0,
           "equal bits on all ranks");
  }

  // Scaled once, by whoever completes an element.
  void averages(std::size_t count) {
    std::vector<double> values(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<double>(group_.rank + i);
      expected[i] = static_cast<double>(group_.size - 1) / 2 + static_cast<double>(i);
      // Powers of two scale exactly; elsewhere one rounding of the same sum.
      expected[i] =
          (expected[i] * static_cast<double>(group_.size)) * (1.0 / static_cast<double>(group_.size));
    }
    allreduce(bytes(values), count, {Type::float64, Op::average, 1.0 / static_cast<double>(group_.size)});
    expect(values == expected, "average");
  }

  // One reduction in order of rank, whatever the segments.
  void low_precision(std::size_t count) {
    std::vector<std::vector<std::uint16_t>> all(group_.size, std::vector<std::uint16_t>(count));
    for (std::size_t r = 0; r < group_.size; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        const float value = uneven(r, i);
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof(bits));
        all[r][i] = static_cast<std::uint16_t>(bits >> 16);
      }
    }
    std::vector<const void*> sources;
    for (const auto& values : all) sources.push_back(values.data());
    std::vector<std::uint16_t> mine = all[group_.rank], expected(count);
    const Arithmetic sum{Type::bfloat16, Op::sum};
    reduce(kernels(), sum.type, sum.op,
           {expected.data(), nullptr, sources.data(), sources.size(), count, 1.0, false});
    allreduce(bytes(mine), count, sum);
    expect(mine == expected, "bfloat16 in order of rank");
  }

  void reduce_scatter(std::size_t count) {
    std::vector<std::int32_t> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<std::int32_t>(i * group_.size + group_.rank);
    exchange_.start_reduce_scatter(bytes(values), count, {Type::int32, Op::sum});
    finish(exchange_, between_);
    const Range mine = part({0, count}, group_.rank, group_.size);
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      const std::size_t p = group_.size;
      expect(values[i] == static_cast<std::int32_t>(i * p * p + p * (p - 1) / 2), "reduce-scatter");
    }
  }

  void allgather(std::size_t count) {
    std::vector<std::int32_t> values(count, -1), expected(count);
    for (std::size_t r = 0; r < group_.size; ++r) {
      const Range chunk = part({0, count}, r, group_.size);
      for (std::size_t i = chunk.begin; i < chunk.end; ++i) {
        expected[i] = static_cast<std::int32_t>(i * group_.size + r);
        if (r == group_.rank) values[i] = expected[i];
      }
    }
    exchange_.start_allgather(bytes(values), count, sizeof(std::int32_t));
    finish(exchange_, between_);
    expect(values == expected, "allgather");
  }

  void broadcast(std::size_t count) {
    for (std::size_t root = 0; root < group_.size; ++root) {
      std::vector<std::uint8_t> values(count), expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<std::uint8_t>(i + group_.rank);
        expected[i] = static_cast<std::uint8_t>(i + root);
      }
      exchange_.start_broadcast(bytes(values), count, root);
      finish(exchange_, between_);
      expect(values == expected, "broadcast");
    }
  }

  Exchange& exchange_;
  Group group_;
  std::function<void()> between_;
  std::string where_;
};

}  // namespace dlscale::network
