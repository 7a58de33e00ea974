// Times ways of moving an allreduce's bytes between hosts, in lockstep, each beside the others in every
// round.
//
//   four_hosts BYTES ROUNDS WAY ...
//
//   sockets                     2 (P - 1) / P BYTES to the next rank over plain TCP: the bound
//   bare:SEGMENT                as many bytes by Isend and Irecv, no sums and nothing to wait for
//   mpi                         MPI_Allreduce
//   ours                        our exchange as it is tuned
//   ring:SEGMENT:WINDOW         our exchange with one algorithm for every size;
//   halving:..., doubling:..., direct:..., one-shot:...
//
// Rank 0 prints a line of JSON per round and way, the seconds being the maximum over ranks. Sums are checked.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "network/exchange.hpp"
#include "network/mpi_transport.hpp"
#include "sockets.hpp"

using namespace dlscale::network;

namespace {

// As the engine waits (hierarchy_network.cpp): ranks of several emulated hosts share a core.
class Patience {
 public:
  void after(bool moved) {
    const double now = MPI_Wtime();
    if (moved) idle_since_ = now;
    if (now > idle_since_ + 10e-6) sched_yield();
  }

 private:
  double idle_since_ = MPI_Wtime();
};

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ':');) parts.push_back(part);
  return parts;
}

Tuning tuning(const std::vector<std::string>& way, std::size_t size) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  Tuning chosen = default_tuning(size);
  if (way[0] == "ours") return chosen;
  chosen.one_shot_bytes = way[0] == "one-shot" ? kAll : 0;
  chosen.recursive_doubling_bytes = way[0] == "doubling" ? kAll : 0;
  chosen.halving_doubling_bytes = way[0] == "halving" ? kAll : 0;
  chosen.direct_segment_bytes = std::stoul(way.at(1));
  chosen.segments = {{kAll, chosen.direct_segment_bytes}};
  chosen.window = std::stoul(way.at(2));
  return chosen;
}

class Race {
 public:
  Race(MPI_Comm comm, std::size_t num_bytes)
      : comm_(comm),
        transport_(comm),
        size_(transport_.group().size),
        rank_(transport_.group().rank),
        streams_(comm),
        exchange_(transport_, default_tuning(size_)),
        values_(num_bytes / sizeof(float)),
        share_(2 * (size_ - 1) * (num_bytes / size_)) {}

  // Seconds on the slowest rank.
  double time(const std::vector<std::string>& way) {
    prepare(way);
    check(MPI_Barrier(comm_));
    const double begin = MPI_Wtime();
    run(way);
    double seconds = MPI_Wtime() - begin;
    check(MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, comm_));
    if (way[0] != "sockets" && way[0] != "bare") check_sums(way[0]);
    return seconds;
  }

 private:
  static void check(int code) {
    if (code != MPI_SUCCESS) throw std::runtime_error("MPI failed");
  }

  void prepare(const std::vector<std::string>& way) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i % 7 + rank_);
    if (way[0] == "bare") scratch_.resize(2 * kBareWindow * std::stoul(way.at(1)));
    if (way[0] != "sockets" && way[0] != "bare" && way[0] != "mpi") exchange_.tune(tuning(way, size_));
  }

  void run(const std::vector<std::string>& way) {
    if (way[0] == "sockets") {
      streams_.stream(share_);
    } else if (way[0] == "bare") {
      bare_ring(std::stoul(way.at(1)));
    } else if (way[0] == "mpi") {
      check(MPI_Allreduce(MPI_IN_PLACE, values_.data(), static_cast<int>(values_.size()), MPI_FLOAT, MPI_SUM,
                          comm_));
    } else {
      Arithmetic sum = arithmetic(dlscale::Type::float32, dlscale::Op::sum);
      sum.in_rank_order = way[0] == "direct" || way[0] == "one-shot";
      exchange_.start_allreduce(reinterpret_cast<std::byte*>(values_.data()), values_.size(), std::move(sum));
      for (Patience patience; !exchange_.done();) patience.after(exchange_.progress());
    }
  }

  void bare_ring(std::size_t segment) {
    const int next = static_cast<int>((rank_ + 1) % size_);
    const int previous = static_cast<int>((rank_ + size_ - 1) % size_);
    const std::size_t num_messages = (share_ + segment - 1) / segment;
    MPI_Request requests[kBareWindow][2];
    for (std::size_t i = 0; i < num_messages + kBareWindow; ++i) {
      MPI_Request* pair = requests[i % kBareWindow];
      int done = i < kBareWindow ? 1 : 0;
      for (Patience patience; !done; patience.after(done != 0)) {
        check(MPI_Testall(2, pair, &done, MPI_STATUSES_IGNORE));
      }
      if (i >= num_messages) continue;
      const int length = static_cast<int>(std::min(segment, share_ - i * segment));
      char* slot = scratch_.data() + 2 * (i % kBareWindow) * segment;
      check(MPI_Irecv(slot, length, MPI_BYTE, previous, 7, comm_, &pair[0]));
      check(MPI_Isend(slot + segment, length, MPI_BYTE, next, 7, comm_, &pair[1]));
    }
  }

  void check_sums(const std::string& way) const {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (values_[i] == static_cast<float>(i % 7 * size_ + size_ * (size_ - 1) / 2)) continue;
      throw std::runtime_error("wrong sum by " + way + " at element " + std::to_string(i));
    }
  }

  static constexpr std::size_t kBareWindow = 4;

  MPI_Comm comm_;
  MpiTransport transport_;
  std::size_t size_, rank_;
  NeighbourStreams streams_;
  Exchange exchange_;
  std::vector<float> values_;
  std::size_t share_;
  std::vector<char> scratch_;
};

void race(MPI_Comm comm, int argc, char** argv) {
  const std::size_t num_bytes = std::stoul(argv[1]);
  const int num_rounds = std::stoi(argv[2]);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  Race race(comm, num_bytes);
  for (int round = -1; round < num_rounds; ++round) {  // the first is not counted
    for (int i = 3; i < argc; ++i) {
      const double seconds = race.time(words(argv[i]));
      if (rank != 0 || round < 0) continue;
      std::printf("{\"way\": \"%s\", \"message_bytes\": %zu, \"round\": %d, \"seconds\": %.6f}\n", argv[i],
                  num_bytes, round, seconds);
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  try {
    race(comm, argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Comm_free(&comm);
  MPI_Finalize();
}
