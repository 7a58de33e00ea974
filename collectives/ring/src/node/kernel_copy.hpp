// Copies by the kernel between the memory of two processes of a user.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "watch.hpp"

namespace dlscale {

// 0, or an error number.
int fetch_from(pid_t process, std::byte* to, std::uintptr_t from, std::size_t num_bytes);
int store_to(pid_t process, const std::byte* from, std::uintptr_t to, std::size_t num_bytes);

constexpr std::size_t kPage = 4096;

// Whether the kernel's copies (`rep movsb`) take four to seven times as long as others: on AMD's processors,
// where the target lies, within pages, a few bytes behind what is read.
bool is_slow(std::uintptr_t from, std::uintptr_t to);

// Memory of this thread for piece p of several, which lies within its page as `like` does: between such
// places the kernel copies whole pages, and never slowly.
std::byte* scratch(std::size_t p, std::size_t piece_bytes, std::uintptr_t like);

// The process of each local rank: this one, where ranks are its threads.
std::vector<pid_t> processes_of(const Watch& watch, int size, bool in_process);

}  // namespace dlscale
