// Exchanges by number: a graph's attributes hold numbers, and a graph may outlive the exchange that it names.
#pragma once

#include <cstdint>
#include <memory>

#include "exchange.hpp"

namespace dlscale {

std::int64_t open_exchange(std::shared_ptr<Exchange> exchange);

// Throws std::runtime_error if it was closed.
std::shared_ptr<Exchange> find_exchange(std::int64_t handle);

// Closing one that is closed does nothing.
void close_exchange(std::int64_t handle);

}  // namespace dlscale
