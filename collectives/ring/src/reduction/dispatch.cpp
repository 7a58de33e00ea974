// Which kernels this CPU runs.
#include <stdexcept>
#include <string>

#include "kernels.hpp"

namespace dlscale {

extern const Kernels kPortableKernels;
#ifdef DLSCALE_X86_KERNELS
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

namespace {

bool runs(const std::string& name) {
#ifdef DLSCALE_X86_KERNELS
  if (name == "avx512") return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  if (name == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#endif
  return name == "portable";
}

const Kernels& named(const std::string& name) {
#ifdef DLSCALE_X86_KERNELS
  if (name == "avx512") return kAvx512Kernels;
  if (name == "avx2") return kAvx2Kernels;
#endif
  return kPortableKernels;
}

}  // namespace

const Kernels& kernels() {
  for (const char* name : {"avx512", "avx2"}) {
    if (runs(name)) return named(name);
  }
  return named("portable");
}

const Kernels& kernels(const char* name) {
  if (!runs(name)) {
    throw std::invalid_argument("no kernels for " + std::string(name) + " on this CPU; choose " +
                                kernels().instruction_set);
  }
  return named(name);
}

}  // namespace dlscale
