// The command line: --name value, all of them required but those with a default here.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace bench {

struct Options {
  std::string output;                   // file of JSON lines, written by rank 0
  std::string flags;                    // file that all ranks map, for `Lockstep`
  std::vector<std::string> operations;  // see operation.hpp
  std::vector<std::size_t> sizes;       // bytes
  std::vector<std::string> modes;       // "hot", "fresh", "cold": see measurement.hpp
  std::vector<int> cpus;                // rank r of the node runs on number r, modulo their number
  std::size_t cold_bytes = 0;           // others touched before a cold call meets the same memory again
  double seconds = 1.0;                 // to be timed in all, shared out evenly
  int rounds = 4;                       // blocks of each operation, taking turns
  int min_calls = 5;                    // timed, of an operation, size and mode
  int max_calls = 1000;
  int warmup_calls = 5;
  std::size_t volume = 0;               // if given: exactly volume / size calls, 1 .. max_calls
  std::string barrier = "shared";       // or "mpi"
  std::string thread_level = "single";  // or "multiple"
  unsigned limit = 600;                 // seconds after which the process ends itself
};

// Throws std::invalid_argument.
Options parse(int argc, char** argv);

}  // namespace bench
