#include "tensorflow_c.hpp"

#include <dlfcn.h>

namespace dlscale::tf {

#define DLSCALE_DEFINE(result, name, arguments) result(*name) arguments = nullptr;
DLSCALE_TF_FUNCTIONS(DLSCALE_DEFINE)
#undef DLSCALE_DEFINE

namespace {

// The library that holds the registries of operations. Python loads it where the usual search cannot see it,
// so it is asked for by name, without ever loading a second one.
void* loaded_framework() {
  for (const char* name : {"libtensorflow_framework.so.2", "libtensorflow_framework.so.3",
                           "libtensorflow_framework.so", "libtensorflow_framework.2.dylib"}) {
    if (void* library = dlopen(name, RTLD_NOLOAD | RTLD_NOW)) return library;
  }
  return nullptr;
}

}  // namespace

std::string find_tensorflow() {
  void* library = loaded_framework();
  if (!library) return "libtensorflow_framework is not loaded in this process";
  std::string missing;
#define DLSCALE_FIND(result, name, arguments)                          \
  name = reinterpret_cast<result(*) arguments>(dlsym(library, #name)); \
  if (!name && missing.empty()) missing = "this TensorFlow has no function " #name;
  DLSCALE_TF_FUNCTIONS(DLSCALE_FIND)
#undef DLSCALE_FIND
  return missing;
}

}  // namespace dlscale::tf
