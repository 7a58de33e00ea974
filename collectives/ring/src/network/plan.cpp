#include "plan.hpp"

#include <cstddef>
#include <stdexcept>

#include "algorithms.hpp"

namespace dlscale::network {
namespace {

constexpr const char* name_of(Algorithm algorithm) {
  constexpr const char* kNames[kNumAlgorithms] = {
      "one_shot", "recursive_doubling", "halving_doubling", "ring", "direct", "tree", "dissemination"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

// The value of the first `size` of an enumeration that has this name.
template <typename Enum, std::size_t size>
Enum called(const std::string& name) {
  std::string known;
  for (std::size_t i = 0; i < size; ++i) {
    const char* other = name_of(static_cast<Enum>(i));
    if (name == other) return static_cast<Enum>(i);
    known += (known.empty() ? "" : ", ") + std::string(other);
  }
  throw std::invalid_argument("no " + name + "; choose one of: " + known);
}

}  // namespace

Operation operation_called(const std::string& name) { return called<Operation, kNumOperations>(name); }
Algorithm algorithm_called(const std::string& name) { return called<Algorithm, kNumAlgorithms>(name); }

Schedule schedule(const Plan& plan, Group group) {
  const std::size_t count = plan.count, max_segment = plan.max_segment;
  switch (plan.operation) {
    case Operation::allreduce:
      switch (plan.algorithm) {
        case Algorithm::one_shot:
          return one_shot(group, count, max_segment);
        case Algorithm::recursive_doubling:
          return recursive_doubling(group, count, max_segment);
        case Algorithm::halving_doubling:
          return halving_doubling(group, count, max_segment);
        case Algorithm::ring:
          return ring_allreduce(group, count, max_segment);
        case Algorithm::direct:
          return direct_allreduce(group, count, max_segment);
        default:
          break;
      }
      break;
    case Operation::reduce_scatter:
      if (plan.algorithm == Algorithm::ring) return ring_reduce_scatter(group, count, max_segment);
      if (plan.algorithm == Algorithm::direct) return direct_reduce_scatter(group, count, max_segment);
      break;
    case Operation::allgather:
      if (plan.algorithm == Algorithm::ring) return ring_allgather(group, count, max_segment);
      if (plan.algorithm == Algorithm::direct) return direct_allgather(group, count, max_segment);
      break;
    case Operation::broadcast:
      if (plan.algorithm == Algorithm::tree) return tree_broadcast(group, count, max_segment, plan.root);
      break;
    case Operation::barrier:
      if (plan.algorithm == Algorithm::dissemination) return dissemination(group);
      break;
  }
  throw std::invalid_argument("this algorithm does another operation");
}

}  // namespace dlscale::network
