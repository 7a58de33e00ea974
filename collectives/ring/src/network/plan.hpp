// One operation at one size, by one algorithm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "../reduction/types.hpp"
#include "schedule.hpp"

namespace dlscale::network {

enum class Algorithm : std::uint8_t {
  one_shot,            // allreduce
  recursive_doubling,  // allreduce
  halving_doubling,    // allreduce
  ring,                // allreduce, reduce-scatter, allgather
  direct,              // allreduce, reduce-scatter, allgather
  tree,                // broadcast
  dissemination,       // barrier
};
inline constexpr std::size_t kNumAlgorithms = 7;

struct Plan {
  Operation operation;
  Algorithm algorithm;
  std::size_t count;        // elements
  std::size_t max_segment;  // elements, at least 1
  std::size_t root;         // of a broadcast, otherwise 0

  bool operator<(const Plan& other) const { return all() < other.all(); }

 private:
  std::tuple<Operation, Algorithm, std::size_t, std::size_t, std::size_t> all() const {
    return {operation, algorithm, count, max_segment, root};
  }
};

// Throws std::invalid_argument if the algorithm does something else.
Schedule schedule(const Plan& plan, Group group);

// By the names above; throw std::invalid_argument and list them.
Operation operation_called(const std::string& name);
Algorithm algorithm_called(const std::string& name);

}  // namespace dlscale::network
