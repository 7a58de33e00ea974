// The Python binding of the ring. It releases the interpreter lock while it communicates.
#include <mpi.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "../engine.hpp"
#include "../network/plan.hpp"
#include "c_abi.hpp"
#include "host_memory.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using dlscale::Engine;
using dlscale::EngineOptions;
using dlscale::HostMemory;
using dlscale::Op;
using dlscale::Type;

namespace {

// The MPI that this file is compiled with, by the name that mpi4py uses.
#if defined(OMPI_MAJOR_VERSION)
constexpr const char* kMpiVendor = "Open MPI";
#elif defined(I_MPI_VERSION)
constexpr const char* kMpiVendor = "Intel MPI";
#elif defined(MVAPICH_VERSION) || defined(MVAPICH2_VERSION)
constexpr const char* kMpiVendor = "MVAPICH";
#elif defined(MPICH_VERSION)
constexpr const char* kMpiVendor = "MPICH";
#else
constexpr const char* kMpiVendor = "unknown";
#endif

Op op_called(const char* text) {
  const std::string_view name = text;
  for (std::size_t i = 0; i < dlscale::kNumOps; ++i) {
    if (name == dlscale::name_of(static_cast<Op>(i))) return static_cast<Op>(i);
  }
  throw nb::value_error(
      ("no operation '" + std::string(name) + "'; choose sum, average, min or max").c_str());
}

void allreduce(Engine& engine, nb::handle array, const char* op, bool bfloat16) {
  const HostMemory buffer(array, true);
  const Type type = buffer.type(bfloat16);
  const Op chosen = op_called(op);
  const nb::gil_scoped_release without_lock;
  engine.allreduce(buffer.bytes(), buffer.count(), type, chosen);
}

// `part` lies apart from `whole`, or is the rank's part of it.
void check_overlap(const Engine& engine, const HostMemory& whole, const HostMemory& part) {
  const std::byte *begin = whole.bytes(), *end = begin + whole.num_bytes();
  const std::byte* own = begin + static_cast<std::size_t>(engine.topology().rank) * part.num_bytes();
  if (part.num_bytes() == 0 || part.bytes() == own) return;
  if (part.bytes() < end && begin < part.bytes() + part.num_bytes()) {
    throw nb::value_error("input and output overlap");
  }
}

void reduce_scatter(Engine& engine, nb::handle whole, nb::handle part, const char* op, bool bfloat16) {
  const HostMemory input(whole, false), output(part, true);
  const Type type = output.type(bfloat16);
  const Op chosen = op_called(op);
  if (input.type(bfloat16) != type) throw nb::type_error("input and output differ in dtype");
  if (input.count() != output.count() * static_cast<std::size_t>(engine.topology().size)) {
    throw nb::value_error("the input must have one output's length per rank");
  }
  check_overlap(engine, input, output);
  const nb::gil_scoped_release without_lock;
  engine.reduce_scatter(input.bytes(), output.bytes(), output.count(), type, chosen);
}

void allgather(Engine& engine, nb::handle part, nb::handle whole, bool bfloat16) {
  const HostMemory input(part, false), output(whole, true);
  const Type type = output.type(bfloat16);
  if (input.type(bfloat16) != type) throw nb::type_error("input and output differ in dtype");
  if (output.count() != input.count() * static_cast<std::size_t>(engine.topology().size)) {
    throw nb::value_error("the output must have one input's length per rank");
  }
  check_overlap(engine, output, input);
  const nb::gil_scoped_release without_lock;
  engine.allgather(input.bytes(), output.bytes(), input.count(), type);
}

void broadcast(Engine& engine, nb::handle array, int root) {
  const HostMemory buffer(array, true);
  buffer.type(true);  // it is of one of those
  const nb::gil_scoped_release without_lock;
  engine.broadcast(buffer.bytes(), buffer.num_bytes(), root);
}

// Bytes in shared memory, which live as long as the array that is returned.
nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> share(Engine& engine, std::size_t num_bytes) {
  dlscale::SharedBuffer buffer;
  {
    const nb::gil_scoped_release without_lock;
    buffer = engine.share(num_bytes);
  }
  auto* data = buffer->own();
  nb::capsule owner(new dlscale::SharedBuffer(std::move(buffer)),
                    [](void* held) noexcept { delete static_cast<dlscale::SharedBuffer*>(held); });
  return {data, {num_bytes}, owner};
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return {text, static_cast<std::size_t>(length)};
}

using Counts = std::map<std::string, std::pair<std::uint64_t, std::uint64_t>>;

Counts counts(const Engine& engine) {
  Counts all;
  for (std::size_t i = 0; i < dlscale::kNumOperations; ++i) {
    const auto operation = static_cast<dlscale::Operation>(i);
    const dlscale::Count count = engine.count(operation);
    all[name_of(operation)] = {count.num_calls, count.num_bytes};
  }
  return all;
}

// Operation, messages up to how many bytes, the fastest variant, and the seconds per byte of all that were
// tried.
using Choice = std::tuple<std::string, std::size_t, std::string, std::vector<std::pair<std::string, double>>>;

std::vector<Choice> choices(Engine& engine) {
  std::vector<Choice> all;
  for (const auto& choice : engine.choices()) {
    std::vector<std::pair<std::string, double>> tried;
    for (const auto& [variant, seconds] : choice.seconds_per_byte)
      tried.emplace_back(name_of(variant), seconds);
    all.emplace_back(name_of(choice.operation), choice.up_to_bytes, name_of(choice.variant),
                     std::move(tried));
  }
  return all;
}

// Up to which size an allreduce between nodes is one-shot, doubled recursively, halved and doubled.
using SwitchPoints = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

SwitchPoints default_switch_points(std::size_t num_ranks) {
  const auto tuning = dlscale::network::default_tuning(num_ranks);
  return {tuning.one_shot_bytes, tuning.recursive_doubling_bytes, tuning.halving_doubling_bytes};
}

// The defaults, but for what is given: switch points of 0 or more, a segment of 1 or more.
dlscale::network::Tuning tuning_of(MPI_Comm comm, const SwitchPoints& points, std::size_t segment_bytes) {
  int size = 1;
  MPI_Comm_size(comm, &size);
  auto tuning = dlscale::network::default_tuning(static_cast<std::size_t>(size));
  const auto set = [](std::size_t* bytes, std::int64_t given) {
    if (given >= 0) *bytes = static_cast<std::size_t>(given);
  };
  set(&tuning.one_shot_bytes, std::get<0>(points));
  set(&tuning.recursive_doubling_bytes, std::get<1>(points));
  set(&tuning.halving_doubling_bytes, std::get<2>(points));
  if (segment_bytes) {
    tuning.segments = {{std::numeric_limits<std::size_t>::max(), segment_bytes}};
    tuning.direct_segment_bytes = segment_bytes;
  }
  return tuning;
}

using Bounds = std::pair<std::size_t, std::size_t>;
using SendTuple = std::tuple<int, Bounds, std::size_t>;
using ReceiveTuple = std::tuple<int, Bounds, std::string, bool, std::size_t, std::size_t>;
using ScheduleTuple = std::tuple<std::vector<SendTuple>, std::vector<ReceiveTuple>, std::size_t, std::size_t>;

const char* name_of(dlscale::network::Arrival arrival) {
  using dlscale::network::Arrival;
  return arrival == Arrival::stored ? "stored" : arrival == Arrival::held ? "held" : "reduced";
}

ScheduleTuple network_schedule(const std::string& operation, const std::string& algorithm, std::size_t rank,
                               std::size_t size, std::size_t count, std::size_t max_segment,
                               std::size_t root) {
  using namespace dlscale::network;
  if (rank >= size || root >= size || max_segment == 0) {
    throw nb::value_error("rank and root must be less than size, max_segment > 0");
  }
  const Plan plan = {operation_called(operation), algorithm_called(algorithm), count, max_segment, root};
  const Schedule schedule = dlscale::network::schedule(plan, {rank, size});
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

NB_MODULE(_engine, m) {
  // Frameworks keep engines alive beyond the interpreter's end; there is nothing to tell the user about.
  nb::set_leak_warnings(false);
  m.attr("MPI_VENDOR") = kMpiVendor;
  m.def("library_version", &library_version);
  m.def("default_switch_points", &default_switch_points, "num_ranks"_a);
  m.def("network_schedule", &network_schedule, "operation"_a, "algorithm"_a, "rank"_a, "size"_a, "count"_a,
        "max_segment"_a, "root"_a = 0);

  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const dlscale::NoMemory& refused) {
      PyErr_SetString(PyExc_MemoryError, refused.what());
    } catch (const std::invalid_argument& refused) {
      PyErr_SetString(PyExc_ValueError, refused.what());
    }
  });

  using WithoutLock = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Engine>(m, "Engine")
      .def(
          "__init__",
          [](Engine* self, MPI_Fint comm, double timeout_seconds, const SwitchPoints& switch_points,
             std::size_t segment_bytes, int ranks_per_node, bool single_copy, bool huge_pages, bool debug) {
            EngineOptions options;
            options.node.timeout_seconds = timeout_seconds;
            options.node.single_copy = single_copy;
            options.node.huge_pages = huge_pages;
            options.network = tuning_of(MPI_Comm_f2c(comm), switch_points, segment_bytes);
            options.ranks_per_node = ranks_per_node;
            options.debug = debug;
            const nb::gil_scoped_release without_lock;
            new (self) Engine(MPI_Comm_f2c(comm), options);
          },
          "comm"_a, "timeout_seconds"_a, "switch_points"_a, "segment_bytes"_a, "ranks_per_node"_a,
          "single_copy"_a, "huge_pages"_a, "debug"_a)
      .def_prop_ro("rank", [](const Engine& e) { return e.topology().rank; })
      .def_prop_ro("size", [](const Engine& e) { return e.topology().size; })
      .def_prop_ro("num_nodes", [](const Engine& e) { return e.topology().num_nodes; })
      .def_prop_ro("num_lanes", [](const Engine& e) { return e.topology().node_size; })
      .def_prop_ro("oversubscribed", [](const Engine& e) { return e.topology().oversubscribed; })
      .def_prop_ro("obstacle_to_single_copies", &Engine::obstacle_to_single_copies)
      .def_prop_ro("obstacle_to_huge_pages", &Engine::obstacle_to_huge_pages)
      .def("choices", &choices)
      .def("counts", &counts)
      .def_prop_ro("instruction_set", &Engine::instruction_set)
      .def("allreduce", &allreduce, "buffer"_a, "op"_a = "sum", "bfloat16"_a = false)
      .def("reduce_scatter", &reduce_scatter, "buffer"_a, "output"_a, "op"_a = "sum", "bfloat16"_a = false)
      .def("allgather", &allgather, "piece"_a, "output"_a, "bfloat16"_a = false)
      .def("broadcast", &broadcast, "buffer"_a, "root"_a)
      .def("barrier", &Engine::barrier, WithoutLock())
      .def("share", &share, "num_bytes"_a)
      .def("close", &Engine::close, WithoutLock());

  nb::class_<dlscale::CAbi>(m, "CAbi")
      .def(nb::init<Engine&>(), "engine"_a, nb::keep_alive<1, 2>())
      .def_prop_ro("address", &dlscale::CAbi::address);
}
