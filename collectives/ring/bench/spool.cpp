#include "spool.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace bench {
namespace {

std::string quoted(const std::string& text) {
  std::string found = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') found += '\\';
    found += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return found + '"';
}

std::string described(const Cell& cell) {
  return "\"operation\": " + quoted(cell.operation) + ", \"mode\": " + quoted(cell.mode) +
         ", \"message_bytes\": " + std::to_string(cell.message_bytes);
}

long nanoseconds(double seconds) { return std::lround(1e9 * seconds); }

}  // namespace

Spool::Spool(const std::string& path, bool write) {
  if (!write) return;
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  file_ = descriptor < 0 ? nullptr : fdopen(descriptor, "w");
  if (file_ == nullptr) throw std::runtime_error("cannot write " + path);
}

Spool::~Spool() {
  if (file_ != nullptr) std::fclose(file_);
}

void Spool::launch(const Options& options, const std::string& mpi, const std::string& thread_level,
                   int num_ranks) {
  if (file_ == nullptr) return;
  std::fprintf(file_, "{\"kind\": \"launch\", \"library\": %s, \"thread_level\": %s, \"num_ranks\": %d, ",
               quoted(mpi).c_str(), quoted(thread_level).c_str(), num_ranks);
  std::fprintf(file_, "\"barrier\": %s, \"cold_bytes\": %zu}\n", quoted(options.barrier).c_str(),
               options.cold_bytes);
  std::fflush(file_);
}

void Spool::block(const Cell& cell, int round, int num_warmup, int num_ranks,
                  const std::vector<double>& seconds, const std::vector<double>& starts) {
  if (file_ == nullptr) return;
  const std::size_t num_calls = seconds.size() / static_cast<std::size_t>(num_ranks);
  std::fprintf(file_, "{\"kind\": \"block\", %s, \"round\": %d, \"num_warmup\": %d, \"nanoseconds\": [",
               described(cell).c_str(), round, num_warmup);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(num_ranks); ++rank) {
    std::fputs(rank == 0 ? "[" : ", [", file_);
    for (std::size_t i = 0; i < num_calls; ++i) {
      std::fprintf(file_, i == 0 ? "%ld" : ",%ld", nanoseconds(seconds[rank * num_calls + i]));
    }
    std::fputs("]", file_);
  }
  std::fputs("], \"spread_nanoseconds\": [", file_);
  for (std::size_t i = 0; i < num_calls; ++i) {
    double first = starts[i], last = starts[i];
    for (std::size_t at = i; at < starts.size(); at += num_calls) {
      first = std::min(first, starts[at]);
      last = std::max(last, starts[at]);
    }
    std::fprintf(file_, i == 0 ? "%ld" : ",%ld", nanoseconds(last - first));
  }
  std::fputs("]}\n", file_);
  std::fflush(file_);
}

void Spool::failure(const Cell& cell, const std::string& reason) {
  if (file_ == nullptr) return;
  std::fprintf(file_, "{\"kind\": \"failure\", %s, \"reason\": %s}\n", described(cell).c_str(),
               quoted(reason).c_str());
  std::fflush(file_);
}

void Spool::round_trip(double seconds) {
  if (file_ == nullptr) return;
  std::fprintf(file_, "{\"kind\": \"round_trip\", \"nanoseconds\": %ld}\n", nanoseconds(seconds));
  std::fflush(file_);
}

void Spool::end() {
  if (file_ == nullptr) return;
  std::fputs("{\"kind\": \"end\"}\n", file_);
  std::fflush(file_);
}

}  // namespace bench
