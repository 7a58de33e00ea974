// The memory of an array that Python hands over. By the buffer protocol alone: a general array library takes
// longer for an array than the ring for a small message.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../reduction/types.hpp"

namespace dlscale {

// Holds the array while it lives; to be made and destroyed under the interpreter's lock.
class HostMemory {
 public:
  // Raises BufferError unless the object is a C-contiguous array, writable where that is wanted, and
  // TypeError if its elements have no size.
  HostMemory(nanobind::handle object, bool writable) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nanobind::python_error();
    if (view_.itemsize < 1) {
      PyBuffer_Release(&view_);
      throw nanobind::type_error("the elements have no size");
    }
  }
  ~HostMemory() { PyBuffer_Release(&view_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  std::byte* bytes() const { return static_cast<std::byte*>(view_.buf); }
  std::size_t num_bytes() const { return static_cast<std::size_t>(view_.len); }
  std::size_t count() const { return num_bytes() / static_cast<std::size_t>(view_.itemsize); }

  // `bfloat16`: the array holds bfloat16 passed as uint16, since NumPy has no such type. Raises TypeError,
  // also for elements that are not aligned.
  Type type(bool bfloat16) const {
    if (reinterpret_cast<std::uintptr_t>(view_.buf) % static_cast<std::size_t>(view_.itemsize)) {
      throw nanobind::type_error("the buffer is not aligned to its dtype");
    }
    const std::string_view format = view_.format ? view_.format : "B";
    if (format == "f") return Type::float32;
    if (format == "d") return Type::float64;
    if (format == "e") return Type::float16;
    if (format == "H" && bfloat16) return Type::bfloat16;
    if (format == "i" || format == "l" || format == "q") {
      return view_.itemsize == 4 ? Type::int32 : Type::int64;
    }
    throw nanobind::type_error("give float32, float64, float16, bfloat16, int32 or int64");
  }

 private:
  Py_buffer view_{};
};

}  // namespace dlscale
