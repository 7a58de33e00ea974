// An engine behind the C ABI of c_interface.hpp.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "../c_interface.hpp"
#include "../engine.hpp"

namespace dlscale {

// The engine must outlive it, and it must outlive every user of its address.
class CAbi {
 public:
  explicit CAbi(Engine& engine) : engine_(engine) {
    table_.context = this;
    table_.allreduce = [](void* context, void* data, std::size_t count, int type, int op) {
      return static_cast<CAbi*>(context)->allreduce(data, count, type, op);
    };
    table_.last_error = [](void* context) { return static_cast<CAbi*>(context)->error_.c_str(); };
  }
  CAbi(const CAbi&) = delete;
  CAbi& operator=(const CAbi&) = delete;

  // Of its DlscaleCollective.
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(&table_); }

 private:
  int allreduce(void* data, std::size_t count, int type, int op) noexcept {
    try {
      if (type < 0 || type >= static_cast<int>(kNumTypes) || op < 0 || op > static_cast<int>(Op::max)) {
        throw std::invalid_argument("no such element type or operation");
      }
      engine_.allreduce(static_cast<std::byte*>(data), count, static_cast<Type>(type), static_cast<Op>(op));
      return 0;
    } catch (const std::exception& error) {
      error_ = error.what();
      return 1;
    }
  }

  Engine& engine_;
  std::string error_;
  DlscaleCollective table_{};
};

}  // namespace dlscale
