// A collective as plain C, for code that shares no C++ library with the engine: TensorFlow's operations are
// compiled into a shared object of their own, which links neither MPI nor Python.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Element types and operations, by number.
enum DlscaleType {
  kDlscaleFloat32 = 0,
  kDlscaleFloat64 = 1,
  kDlscaleBfloat16 = 2,
  kDlscaleFloat16 = 3,
  kDlscaleInt32 = 4,
  kDlscaleInt64 = 5,
};
enum DlscaleOp { kDlscaleSum = 0, kDlscaleAverage = 1, kDlscaleMin = 2, kDlscaleMax = 3 };

// Valid as long as the object that handed it out.
struct DlscaleCollective {
  void* context;  // the first argument of every function
  // In place, collective and blocking; from any thread, one at a time. 0, or not 0 if it failed; never
  // throws.
  int (*allreduce)(void* context, void* data, std::size_t count, int type, int op);
  // One line about the last failure; valid until the next call.
  const char* (*last_error)(void* context);
};

}  // extern "C"
