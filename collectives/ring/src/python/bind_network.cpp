#include "bind_network.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../network/plan.hpp"

namespace nb = nanobind;

namespace dlscale::network {
namespace {

using Bounds = std::pair<std::size_t, std::size_t>;
using SendTuple = std::tuple<int, Bounds, std::size_t>;
using ReceiveTuple = std::tuple<int, Bounds, std::string, bool, std::size_t, std::size_t>;
using ScheduleTuple = std::tuple<std::vector<SendTuple>, std::vector<ReceiveTuple>, std::size_t, std::size_t>;

const char* name_of(Arrival arrival) {
  return arrival == Arrival::stored ? "stored" : arrival == Arrival::held ? "held" : "reduced";
}

ScheduleTuple network_schedule(const std::string& operation, const std::string& algorithm, std::size_t rank,
                               std::size_t size, std::size_t count, std::size_t max_segment,
                               std::size_t root) {
  if (rank >= size || root >= size || max_segment == 0) {
    throw nb::value_error("rank and root must be less than size, max_segment > 0");
  }
  const Plan plan = {operation_called(operation), algorithm_called(algorithm), count, max_segment, root};
  const Schedule schedule = network::schedule(plan, {rank, size});
  std::vector<SendTuple> sends;
  for (const Send& send : schedule.sends) {
    sends.emplace_back(send.peer, Bounds(send.range.begin, send.range.end), send.num_received_before);
  }
  std::vector<ReceiveTuple> receives;
  for (const Receive& receive : schedule.receives) {
    receives.emplace_back(receive.peer, Bounds(receive.range.begin, receive.range.end),
                          name_of(receive.arrival), receive.completes, receive.num_sent_before,
                          receive.num_received_before);
  }
  return {sends, receives, schedule.longest_in_scratch, schedule.largest_reduction};
}

}  // namespace

void bind_network(nb::module_& m) {
  m.def("network_schedule", &network_schedule, nb::arg("operation"), nb::arg("algorithm"), nb::arg("rank"),
        nb::arg("size"), nb::arg("count"), nb::arg("max_segment"), nb::arg("root") = 0);
}

}  // namespace dlscale::network
