// The schedules between nodes, for the tests that prove them.
#pragma once

#include <nanobind/nanobind.h>

namespace dlscale::network {

void bind_network(nanobind::module_& m);

}  // namespace dlscale::network
