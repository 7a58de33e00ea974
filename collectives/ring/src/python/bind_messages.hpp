// The binding of messages from rank to rank.
#pragma once

#include <nanobind/nanobind.h>

#include "../engine.hpp"

namespace dlscale {

// Adds the class of messages that are under way to `m`, and their functions to `engine`.
void bind_messages(nanobind::module_& m, nanobind::class_<Engine>& engine);

}  // namespace dlscale
