// The kernels of every instruction set against the plain reduction, and against each other bit for bit; which
// of several NaNs an element ends with is left open.
//
//   kernels_test            those that this CPU runs
#include "reduction/kernels.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "complaints.hpp"
#include "reference.hpp"

using namespace dlscale;
using namespace dlscale::testing;

namespace {

Complaints g_complaints;

constexpr std::size_t kGuard = 64;  // bytes on either side that nobody may touch
constexpr std::byte kUntouched{0xa5};

// Memory that begins `shift` bytes after a cache line.
class Area {
 public:
  Area(std::size_t num_bytes, std::size_t shift) : raw_(num_bytes + shift + 2 * kGuard + 64, kUntouched) {
    const auto address = reinterpret_cast<std::uintptr_t>(raw_.data()) + kGuard;
    begin_ = raw_.data() + kGuard + (64 - address % 64) % 64 + shift;
    num_bytes_ = num_bytes;
  }
  std::byte* data() { return begin_; }
  bool guards_are_untouched() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (begin_[num_bytes_ + i] != kUntouched || *(begin_ - 1 - i) != kUntouched) return false;
    }
    return true;
  }

 private:
  std::vector<std::byte> raw_;
  std::byte* begin_;
  std::size_t num_bytes_;
};

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all;
  for (const char* name : {"portable", "avx2", "avx512"}) {
    try {
      all.push_back(&kernels(name));
    } catch (const std::invalid_argument& refusal) {
      std::printf("%s\n", refusal.what());
    }
  }
  return all;
}

struct Case {
  Type type;
  Op op;
  Values values;
  std::size_t num_sources;
  std::size_t count;
  std::size_t shift;  // elements after a cache line
  bool in_place;
  bool second;
  bool streaming;
};

std::string text_of(const Case& c) {
  return std::string(name_of(c.type)) + " " + name_of(c.op) + (c.values == Values::wild ? " wild" : "") +
         ", " + std::to_string(c.num_sources) + " sources, " + std::to_string(c.count) + " elements, shift " +
         std::to_string(c.shift) + (c.in_place ? ", in place" : "") + (c.second ? ", second" : "") +
         (c.streaming ? ", streaming" : "");
}

// The result of one instruction set.
std::vector<std::byte> run(const Kernels& k, const Case& c,
                           const std::vector<std::vector<std::byte>>& inputs) {
  const std::size_t element = width(c.type);
  const std::size_t num_bytes = c.count * element;
  std::vector<Area> areas;
  std::vector<const void*> sources;
  for (std::size_t s = 0; s < c.num_sources; ++s) {
    areas.emplace_back(num_bytes, (c.shift + s) * element);
    if (num_bytes) std::memcpy(areas.back().data(), inputs[s].data(), num_bytes);
  }
  for (Area& area : areas) sources.push_back(area.data());
  Area out(num_bytes, c.shift * element), second(num_bytes, 0);
  std::byte* target = c.in_place ? areas.back().data() : out.data();
  const double scale = c.op == Op::average ? 1.0 / static_cast<double>(c.num_sources) : 1.0;
  reduce(k, c.type, c.op,
         {target, c.second ? second.data() : nullptr, sources.data(), sources.size(), c.count, scale,
          c.streaming});
  const std::string where = std::string(k.instruction_set) + ": " + text_of(c);
  if (num_bytes && c.second && std::memcmp(second.data(), target, num_bytes) != 0) {
    g_complaints.add("second result differs: " + where);
  }
  bool untouched = out.guards_are_untouched() && second.guards_are_untouched();
  for (Area& area : areas) untouched = untouched && area.guards_are_untouched();
  if (!untouched) g_complaints.add("wrote beside its elements: " + where);
  return {target, target + num_bytes};
}

void check(const std::vector<const Kernels*>& all, const Case& c, std::uint64_t seed) {
  std::vector<std::vector<std::byte>> inputs(c.num_sources, std::vector<std::byte>(c.count * width(c.type)));
  std::vector<const std::byte*> sources;
  for (std::size_t s = 0; s < c.num_sources; ++s) {
    fill(inputs[s].data(), 0, c.count, c.type, c.values, seed, static_cast<int>(s));
    sources.push_back(inputs[s].data());
  }
  std::vector<std::byte> expected(c.count * width(c.type));
  const double scale = c.op == Op::average ? 1.0 / static_cast<double>(c.num_sources) : 1.0;
  reduce_plainly(expected.data(), sources, c.count, c.type, c.op, scale);
  std::vector<std::byte> first;
  for (const Kernels* k : all) {
    const std::vector<std::byte> found = run(*k, c, inputs);
    const std::string wrong = difference(found.data(), expected.data(), c.count, c.type);
    if (!wrong.empty()) g_complaints.add(std::string(k->instruction_set) + ": " + text_of(c) + ": " + wrong);
    if (k == all.front()) first = found;
    if (!difference(found.data(), first.data(), c.count, c.type).empty()) {
      g_complaints.add(std::string(k->instruction_set) + " and " + all.front()->instruction_set +
                       " differ: " + text_of(c));
    }
  }
}

// Wherever an element lies in the vectors, it gets the same bits: those it has when it is alone.
void check_places(const Kernels& k, Type type, Op op) {
  constexpr std::size_t kCount = 300;
  const std::size_t element = width(type);
  Case c{type, op, Values::wild, 3, kCount, 0, false, false, false};
  std::vector<std::vector<std::byte>> inputs(3, std::vector<std::byte>(kCount * element));
  for (int s = 0; s < 3; ++s)
    fill(inputs[static_cast<std::size_t>(s)].data(), 0, kCount, type, c.values, 77, s);
  const std::vector<std::byte> together = run(k, c, inputs);
  c.count = 1;
  for (std::size_t i = 0; i < kCount; ++i) {
    std::vector<std::vector<std::byte>> alone;
    for (const auto& input : inputs) alone.emplace_back(&input[i * element], &input[i * element] + element);
    if (!difference(run(k, c, alone).data(), &together[i * element], 1, type).empty()) {
      g_complaints.add(std::string(k.instruction_set) + ": element " + std::to_string(i) +
                       " has other bits alone: " + text_of(c));
      return;
    }
  }
}

void check_copies(const Kernels& k) {
  for (const std::size_t num_bytes : {0u, 1u, 2u, 63u, 64u, 65u, 255u, 256u, 257u, 1000u, 4096u, 5001u}) {
    for (const std::size_t shift : {0u, 2u, 12u, 33u}) {
      std::vector<std::byte> input(num_bytes + 1);
      fill(input.data(), 0, input.size() / 2, Type::float16, Values::wild, num_bytes, 0);
      Area from(num_bytes, shift);
      if (num_bytes) std::memcpy(from.data(), input.data(), num_bytes);
      Area cached(num_bytes, (shift * 7) % 64), streamed(num_bytes, 0);
      k.copy(cached.data(), from.data(), num_bytes);
      k.copy_streaming(streamed.data(), from.data(), num_bytes);
      const bool equal = num_bytes == 0 || (!std::memcmp(cached.data(), input.data(), num_bytes) &&
                                            !std::memcmp(streamed.data(), input.data(), num_bytes));
      if (!equal || !cached.guards_are_untouched() || !streamed.guards_are_untouched()) {
        g_complaints.add(std::string(k.instruction_set) + ": copy of " + std::to_string(num_bytes) +
                         " bytes");
      }
    }
  }
}

}  // namespace

int main() {
  const std::vector<const Kernels*> all = all_kernels();
  std::uint64_t seed = 0;
  for (const Type type : kTypes) {
    for (const Op op : kOps) {
      if (op == Op::average && is_integer(type)) continue;
      for (const Values values : {Values::tame, Values::wild}) {
        for (const std::size_t num_sources : {1u, 2u, 3u, 5u}) {
          for (const std::size_t count : {0u, 1u, 7u, 31u, 64u, 127u, 300u}) {
            for (int way = 0; way < 8; ++way) {
              const bool streaming = way & 4;
              check(all,
                    {type, op, values, num_sources, count, (seed * 5) % 37, bool(way & 1),
                     bool(way & 2) || streaming, streaming},
                    seed);
              ++seed;
            }
          }
        }
      }
      for (const Kernels* k : all) check_places(*k, type, op);
    }
  }
  for (const Kernels* k : all) check_copies(*k);
  return g_complaints.verdict(std::to_string(seed) + " reductions by " + std::to_string(all.size()) +
                              " instruction sets");
}
