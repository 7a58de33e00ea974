#include "arithmetic.hpp"

namespace dlscale::network {

Arithmetic arithmetic(Type type, Op op, double scale) {
  // One object that std::function holds without allocating memory.
  struct Reducer {
    double scale;
    Type type;
    Op op;
    void operator()(void* into, const void* const* sources, std::size_t num_sources, std::size_t count,
                    bool complete) const {
      reduce(kernels(), type, op, {into, nullptr, sources, num_sources, count, complete ? scale : 1, false});
    }
  };
  const bool rounds = type == Type::bfloat16 || type == Type::float16;
  return {width(type), Reducer{scale, type, op}, rounds};
}

}  // namespace dlscale::network
