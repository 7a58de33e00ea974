// What rank 0 writes down: a JSON object per line, flushed, so that a crash leaves what was finished.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "options.hpp"

namespace bench {

// An operation, size and mode.
struct Cell {
  std::string operation;
  std::string mode;
  std::size_t message_bytes;
};

class Spool {
 public:
  // A new file, private to the user; one that exists already is an error. `write` false: for the other ranks,
  // who write nothing.
  Spool(const std::string& path, bool write);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  void launch(const Options& options, const std::string& mpi, const std::string& thread_level, int num_ranks);
  // `seconds` and `starts`: of each call, rank after rank.
  void block(const Cell& cell, int round, int num_warmup, int num_ranks, const std::vector<double>& seconds,
             const std::vector<double>& starts);
  void failure(const Cell& cell, const std::string& reason);
  void round_trip(double seconds);
  void end();

 private:
  std::FILE* file_ = nullptr;
};

}  // namespace bench
