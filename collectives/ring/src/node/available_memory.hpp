// How much memory this process may still take.
#pragma once

#include <cstddef>

namespace dlscale {

// Bytes that the machine can give without ending another program, or the control group of this process within
// its limit, whichever is less. The largest number where nobody says.
std::size_t available_memory();

}  // namespace dlscale
