#include "plan.hpp"

#include <array>
#include <stdexcept>
#include <utility>

#include "algorithms.hpp"

namespace dlscale::network {
namespace {

constexpr std::array<std::pair<const char*, Operation>, 5> kOperations = {{
    {"allreduce", Operation::allreduce},
    {"reduce_scatter", Operation::reduce_scatter},
    {"allgather", Operation::allgather},
    {"broadcast", Operation::broadcast},
    {"barrier", Operation::barrier},
}};

constexpr std::array<std::pair<const char*, Algorithm>, 7> kAlgorithms = {{
    {"one_shot", Algorithm::one_shot},
    {"recursive_doubling", Algorithm::recursive_doubling},
    {"halving_doubling", Algorithm::halving_doubling},
    {"ring", Algorithm::ring},
    {"direct", Algorithm::direct},
    {"tree", Algorithm::tree},
    {"dissemination", Algorithm::dissemination},
}};

template <typename Names>
auto called(const std::string& name, const Names& names) {
  std::string known;
  for (const auto& [known_name, value] : names) {
    if (name == known_name) return value;
    known += (known.empty() ? "" : ", ") + std::string(known_name);
  }
  throw std::invalid_argument("no " + name + "; choose one of: " + known);
}

}  // namespace

Operation operation_called(const std::string& name) { return called(name, kOperations); }
Algorithm algorithm_called(const std::string& name) { return called(name, kAlgorithms); }

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
