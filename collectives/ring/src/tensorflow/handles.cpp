#include "handles.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace dlscale {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::int64_t, std::shared_ptr<Exchange>> exchanges;
  std::int64_t next_handle = 1;
};

// Never destroyed: when a process ends, a thread may still be inside an exchange.
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

}  // namespace

std::int64_t open_exchange(std::shared_ptr<Exchange> exchange) {
  Registry& known = registry();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.exchanges.emplace(known.next_handle, std::move(exchange));
  return known.next_handle++;
}

std::shared_ptr<Exchange> find_exchange(std::int64_t handle) {
  Registry& known = registry();
  const std::lock_guard<std::mutex> lock(known.mutex);
  const auto found = known.exchanges.find(handle);
  if (found == known.exchanges.end()) throw std::runtime_error("the exchange of gradients is closed");
  return found->second;
}

void close_exchange(std::int64_t handle) {
  std::shared_ptr<Exchange> closing;
  {
    Registry& known = registry();
    const std::lock_guard<std::mutex> lock(known.mutex);
    const auto found = known.exchanges.find(handle);
    if (found == known.exchanges.end()) return;
    closing = std::move(found->second);
    known.exchanges.erase(found);
  }
  closing->close();  // without the registry's lock: it waits for threads
}

}  // namespace dlscale
