// The Python face of the ring. It lets go of the interpreter lock while it communicates.
#include <mpi.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine.hpp"
#include "geometry.hpp"
#include "sum.hpp"

namespace nb = nanobind;
using dlscale::Element;
using dlscale::Engine;
using dlscale::Range;
using dlscale::Ring;

namespace {

using Buffer = nb::ndarray<nb::c_contig, nb::device::cpu>;  // writable: nanobind refuses a read-only one
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

const Element& element_of(const Buffer& buffer) {
  if (buffer.dtype() == nb::dtype<float>()) return dlscale::kFloat32;
  if (buffer.dtype() == nb::dtype<double>()) return dlscale::kFloat64;
  if (buffer.dtype() == nb::dtype<std::int32_t>()) return dlscale::kInt32;
  if (buffer.dtype() == nb::dtype<std::int64_t>()) return dlscale::kInt64;
  throw nb::type_error("give float32, float64, int32 or int64");
}

void allreduce(Engine& engine, const Buffer& buffer) {
  engine.allreduce(static_cast<std::byte*>(buffer.data()), buffer.size(), element_of(buffer));
}

void broadcast(Engine& engine, const Buffer& buffer, int root) {
  engine.broadcast(static_cast<std::byte*>(buffer.data()), buffer.nbytes(), root);
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return {text, static_cast<std::size_t>(length)};
}

std::pair<std::size_t, std::size_t> chunk_bounds(std::size_t count, std::size_t size, std::size_t chunk) {
  if (chunk >= size) throw nb::value_error("chunk must be less than size");
  const Range range = dlscale::part({0, count}, chunk, size);
  return {range.begin, range.end};
}

// (sent, received, adds, received before sending, sent before receiving) of each message.
using Bounds = std::pair<std::size_t, std::size_t>;
using Message = std::tuple<Bounds, Bounds, bool, std::size_t, std::size_t>;

std::vector<Message> ring_schedule(std::size_t count, std::size_t rank, std::size_t size,
                                   std::size_t max_segment) {
  if (rank >= size || max_segment == 0) throw nb::value_error("rank must be less than size, max_segment > 0");
  const Ring ring(count, rank, size, max_segment);
  std::vector<Message> messages;
  for (std::size_t i = 0; i < ring.num_messages(); ++i) {
    const Range sent = ring.sent(i), received = ring.received(i);
    messages.emplace_back(Bounds(sent.begin, sent.end), Bounds(received.begin, received.end), ring.adds(i),
                          ring.num_received_before_sending(i), ring.num_sent_before_receiving(i));
  }
  return messages;
}

}  // namespace

NB_MODULE(_engine, m) {
  m.attr("MPI_VENDOR") = kMpiVendor;
  m.def("library_version", &library_version);
  m.def("chunk_bounds", &chunk_bounds, nb::arg("count"), nb::arg("size"), nb::arg("chunk"));
  m.def("ring_schedule", &ring_schedule, nb::arg("count"), nb::arg("rank"), nb::arg("size"),
        nb::arg("max_segment"));

  nb::class_<Engine>(m, "Engine")
      .def(
          "__init__",
          [](Engine* self, MPI_Fint comm, std::size_t segment_bytes) {
            new (self) Engine(MPI_Comm_f2c(comm), segment_bytes);
          },
          nb::arg("comm"), nb::arg("segment_bytes"), WithoutLock())
      .def_prop_ro("rank", &Engine::rank)
      .def_prop_ro("size", &Engine::size)
      .def_prop_ro("crowded", &Engine::crowded)
      .def("allreduce", &allreduce, nb::arg("buffer").noconvert(), WithoutLock())
      .def("broadcast", &broadcast, nb::arg("buffer").noconvert(), nb::arg("root"), WithoutLock())
      .def("barrier", &Engine::barrier, WithoutLock())
      .def("close", &Engine::close, WithoutLock());
}
