// The Python binding of the ring. It releases the interpreter lock while it communicates.
#include <mpi.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "../bfloat16_wire.hpp"
#include "../engine.hpp"
#include "bind_messages.hpp"
#include "bind_network.hpp"
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

using WithoutLock = nb::call_guard<nb::gil_scoped_release>;

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
  if (name == "sum") return Op::sum;
  if (name == "average") return Op::average;
  if (name == "min") return Op::min;
  if (name == "max") return Op::max;
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

void reduce(Engine& engine, nb::handle array, const char* op, int root, bool bfloat16) {
  const HostMemory buffer(array, true);
  const Type type = buffer.type(bfloat16);
  const Op chosen = op_called(op);
  const nb::gil_scoped_release without_lock;
  engine.reduce(buffer.bytes(), buffer.count(), type, chosen, root);
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

using Wire = dlscale::Bfloat16Wire;
using Bucket = std::optional<std::uint64_t>;

void allreduce_over(Wire& wire, nb::handle array, const char* op, bool bfloat16, const Bucket& bucket) {
  const HostMemory buffer(array, true);
  const Type type = buffer.type(bfloat16);
  const Op chosen = op_called(op);
  const nb::gil_scoped_release without_lock;
  wire.allreduce(buffer.bytes(), buffer.count(), type, chosen, bucket);
}

// A view of what is kept of a bucket, a row per place; valid as long as the bucket keeps its length.
nb::ndarray<nb::numpy, float, nb::ndim<2>> residual(Wire& wire, std::uint64_t bucket, std::size_t count) {
  auto& known = wire.residuals();
  const auto found = known.find(bucket);
  if (found == known.end() || found->second.count() != count) {
    known.erase(bucket);
    known.emplace(bucket, dlscale::Residual(count));
  }
  return {known.at(bucket).place(0), {dlscale::Residual::kNumPlaces, count}, nb::find(wire)};
}

std::vector<std::pair<std::uint64_t, std::size_t>> buckets(Wire& wire) {
  std::vector<std::pair<std::uint64_t, std::size_t>> all;
  for (const auto& [bucket, kept] : wire.residuals()) all.emplace_back(bucket, kept.count());
  return all;
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return {text, static_cast<std::size_t>(length)};
}

using Variants = std::vector<std::tuple<std::size_t, bool, bool>>;

std::vector<dlscale::CopyVariant> variants_of(const Variants& variants) {
  std::vector<dlscale::CopyVariant> all;
  for (const auto& [chunk_bytes, prefetch, streaming] : variants)
    all.push_back({chunk_bytes, prefetch, streaming});
  return all;
}

// What was found to be fastest: operation, messages up to how many bytes, the variant in words, and the
// seconds per byte of all variants that were tried.
using Choice = std::tuple<std::string, std::size_t, std::string, std::vector<std::pair<std::string, double>>>;

std::vector<Choice> choices(Engine& engine) {
  static constexpr const char* kOperations[dlscale::kNumTimed] = {"allreduce", "rounded allreduce",
                                                                  "reduce_scatter", "allgather", "broadcast"};
  std::vector<Choice> all;
  for (const auto& choice : engine.choices()) {
    std::vector<std::pair<std::string, double>> tried;
    for (const auto& [variant, seconds] : choice.seconds_per_byte) {
      tried.emplace_back(in_words(variant), seconds);
    }
    all.emplace_back(kOperations[static_cast<std::size_t>(choice.kind)], choice.up_to_bytes,
                     in_words(choice.variant), std::move(tried));
  }
  return all;
}

using Segments = std::vector<std::pair<std::size_t, std::size_t>>;

dlscale::network::Tuning tuning_of(std::size_t one_shot_bytes, std::size_t recursive_doubling_bytes,
                                   std::size_t halving_doubling_bytes, std::size_t direct_bytes,
                                   std::size_t tree_bytes, const Segments& segments,
                                   std::size_t direct_segment_bytes, std::size_t window) {
  dlscale::network::Tuning tuning{one_shot_bytes,
                                  recursive_doubling_bytes,
                                  halving_doubling_bytes,
                                  direct_bytes,
                                  tree_bytes,
                                  {},
                                  direct_segment_bytes,
                                  window};
  for (const auto& [up_to_bytes, segment_bytes] : segments) {
    tuning.segments.push_back({up_to_bytes, segment_bytes});
  }
  tuning.check();
  return tuning;
}

}  // namespace

NB_MODULE(_engine, m) {
  // Frameworks keep engines alive beyond the interpreter's end; there is nothing to tell the user about.
  nb::set_leak_warnings(false);
  m.attr("MPI_VENDOR") = kMpiVendor;
  m.def("library_version", &library_version);
  dlscale::network::bind_network(m);

  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const dlscale::NoMemory& refused) {
      PyErr_SetString(PyExc_MemoryError, refused.what());
    } catch (const std::invalid_argument& refused) {
      PyErr_SetString(PyExc_ValueError, refused.what());
    }
  });

  nb::class_<dlscale::network::Tuning>(m, "NetworkTuning")
      .def(
          "__init__",
          [](dlscale::network::Tuning* self, std::size_t one_shot, std::size_t recursive_doubling,
             std::size_t halving_doubling, std::size_t direct, std::size_t tree, const Segments& segments,
             std::size_t direct_segment, std::size_t window) {
            new (self) dlscale::network::Tuning(tuning_of(one_shot, recursive_doubling, halving_doubling,
                                                          direct, tree, segments, direct_segment, window));
          },
          "one_shot_bytes"_a, "recursive_doubling_bytes"_a, "halving_doubling_bytes"_a, "direct_bytes"_a,
          "tree_bytes"_a, "segments"_a, "direct_segment_bytes"_a, "window"_a)
      .def_ro("one_shot_bytes", &dlscale::network::Tuning::one_shot_bytes)
      .def_ro("recursive_doubling_bytes", &dlscale::network::Tuning::recursive_doubling_bytes)
      .def_ro("halving_doubling_bytes", &dlscale::network::Tuning::halving_doubling_bytes)
      .def_ro("direct_bytes", &dlscale::network::Tuning::direct_bytes)
      .def_ro("tree_bytes", &dlscale::network::Tuning::tree_bytes)
      .def_ro("direct_segment_bytes", &dlscale::network::Tuning::direct_segment_bytes)
      .def_ro("window", &dlscale::network::Tuning::window)
      .def_prop_ro("segments", [](const dlscale::network::Tuning& tuning) {
        Segments segments;
        for (const auto& segment : tuning.segments) {
          segments.emplace_back(segment.up_to_bytes, segment.segment_bytes);
        }
        return segments;
      });
  m.def("default_tuning", &dlscale::network::default_tuning, "num_ranks"_a);

  nb::class_<Engine> engine(m, "Engine");
  engine
      .def(
          "__init__",
          [](Engine* self, MPI_Fint comm, const dlscale::network::Tuning& network, double timeout_seconds,
             const std::string& shared_memory, std::size_t one_shot_bytes, const Variants& variants,
             std::size_t block_bytes, int piece, bool debug, bool single_copy, bool huge_pages) {
            EngineOptions options;
            options.node.timeout_seconds = timeout_seconds;
            options.node.memory.sharing = shared_memory == "memfd" ? dlscale::Sharing::memory_file
                                          : shared_memory == "shm" ? dlscale::Sharing::shm_file
                                                                   : dlscale::Sharing::automatic;
            options.node.one_shot_bytes = one_shot_bytes;
            options.node.variants = variants_of(variants);
            options.node.single_copy = single_copy;
            options.node.memory.huge_pages = huge_pages;
            options.network = network;
            options.block_bytes = block_bytes;
            options.piece = piece;
            options.debug = debug;
            const nb::gil_scoped_release without_lock;
            new (self) Engine(MPI_Comm_f2c(comm), options);
          },
          "comm"_a, "network"_a, "timeout_seconds"_a, "shared_memory"_a, "one_shot_bytes"_a, "variants"_a,
          "block_bytes"_a, "piece"_a, "debug"_a, "single_copy"_a, "huge_pages"_a)
      .def_prop_ro("rank", [](const Engine& e) { return e.topology().rank; })
      .def_prop_ro("size", [](const Engine& e) { return e.topology().size; })
      .def_prop_ro("local_rank", [](const Engine& e) { return e.topology().local_rank; })
      .def_prop_ro("node_size", [](const Engine& e) { return e.topology().node_size; })
      .def_prop_ro("num_nodes", [](const Engine& e) { return e.topology().num_nodes; })
      .def_prop_ro("num_lanes", [](const Engine& e) { return e.topology().num_lanes; })
      .def_prop_ro("oversubscribed", [](const Engine& e) { return e.topology().oversubscribed; })
      .def_prop_ro("memory_kind", [](Engine& e) { return std::string(e.memory_kind()); })
      .def_prop_ro("obstacle_to_single_copies", [](Engine& e) { return e.obstacle_to_single_copies(); })
      .def_prop_ro("obstacle_to_huge_pages", [](Engine& e) { return e.obstacle_to_huge_pages(); })
      .def_prop_ro("num_own_cpus", [](const Engine& e) { return e.topology().num_own_cpus; })
      .def_prop_rw("num_cores", &Engine::num_cores, &Engine::set_num_cores)
      .def("choices", &choices)
      .def_prop_ro("instruction_set", [](const Engine& e) { return std::string(e.instruction_set()); })
      .def("allreduce", &allreduce, "buffer"_a, "op"_a = "sum", "bfloat16"_a = false)
      .def("reduce", &reduce, "buffer"_a, "op"_a, "root"_a, "bfloat16"_a = false)
      .def("reduce_scatter", &reduce_scatter, "buffer"_a, "output"_a, "op"_a = "sum", "bfloat16"_a = false)
      .def("allgather", &allgather, "piece"_a, "output"_a, "bfloat16"_a = false)
      .def("broadcast", &broadcast, "buffer"_a, "root"_a)
      .def("barrier", &Engine::barrier, WithoutLock())
      .def("share", &share, "num_bytes"_a)
      .def("close", &Engine::close, WithoutLock());
  dlscale::bind_messages(m, engine);

  nb::class_<dlscale::CAbi>(m, "CAbi")
      .def(nb::init<Engine&>(), "engine"_a, nb::keep_alive<1, 2>())
      .def_prop_ro("address", &dlscale::CAbi::address);

  nb::class_<Wire>(m, "Bfloat16Wire")
      .def(nb::init<Engine&, bool>(), "engine"_a, "error_feedback"_a, nb::keep_alive<1, 2>())
      .def_prop_ro("address", &Wire::address)
      .def("allreduce", &allreduce_over, "buffer"_a, "op"_a, "bfloat16"_a, "bucket"_a.none())
      .def("buckets", &buckets)
      .def("residual", &residual, "bucket"_a, "count"_a)
      .def("forget", [](Wire& wire) { wire.residuals().clear(); });
}
