// Times ways of moving an allreduce's bytes between hosts, in lockstep, each against the others in every round.
//
//   four_hosts BYTES ROUNDS WAY ...
//
//   sockets                          2 (P - 1) / P BYTES from rank to rank over plain TCP: the bound
//   bare:SEGMENT                     as many bytes by Isend and Irecv in segments, no sums
//   mpi                              MPI_Allreduce
//   ring:SEGMENT:WINDOW              our exchange, every buffer round the ring;
//   halving:..., doubling:..., direct:...   or by another algorithm
//
// Rank 0 prints a line of JSON per round and way: {"way", "bytes", "round", "seconds"}, the maximum over ranks.
#include <mpi.h>
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "network/exchange.hpp"
#include "network/mpi_transport.hpp"
#include "sockets.hpp"

namespace net = dlscale::network;

namespace {

int g_rank = 0, g_size = 1;
int g_spins = 1000;

class Patience {
 public:
  void moved(bool yes) {
    if (yes) { idle_ = 0; return; }
    if (++idle_ > g_spins) sched_yield();
  }
 private:
  int idle_ = 0;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ':');) parts.push_back(part);
  return parts;
}

void bare_ring(char* data, std::size_t num_bytes, std::size_t segment) {
  constexpr std::size_t kWindow = 4;
  const int next = (g_rank + 1) % g_size, previous = (g_rank + g_size - 1) % g_size;
  MPI_Request requests[kWindow][2];
  const std::size_t num = (num_bytes + segment - 1) / segment;
  Patience patience;
  for (std::size_t i = 0; i < num + kWindow; ++i) {
    MPI_Request* two = requests[i % kWindow];
    if (i >= kWindow) {
      for (int done = 0; !done;) { MPI_Testall(2, two, &done, MPI_STATUSES_IGNORE); patience.moved(done); }
    }
    if (i >= num) continue;
    const int length = static_cast<int>(std::min(segment, num_bytes - i * segment));
    char* slot = data + i % kWindow * 2 * segment;
    MPI_Irecv(slot, length, MPI_BYTE, previous, 7, MPI_COMM_WORLD, &two[0]);
    MPI_Isend(slot + segment, length, MPI_BYTE, next, 7, MPI_COMM_WORLD, &two[1]);
  }
}

net::Tuning tuning(const std::vector<std::string>& way) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  net::Tuning t = net::default_tuning(static_cast<std::size_t>(g_size));
  t.one_shot_bytes = 0;
  t.recursive_doubling_bytes = way[0] == "doubling" ? kAll : 0;
  t.halving_doubling_bytes = way[0] == "halving" ? kAll : 0;
  t.segments = {{kAll, std::stoul(way[1])}};
  t.window = std::stoul(way[2]);
  return t;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  if (std::getenv("SPINS")) g_spins = std::atoi(std::getenv("SPINS"));
  const std::size_t num_bytes = std::stoul(argv[1]);
  const int num_rounds = std::stoi(argv[2]);
  const std::size_t count = num_bytes / sizeof(float);
  const std::size_t share = 2 * (g_size - 1) * (num_bytes / g_size);
  std::vector<float> data(count + 8 * (4 << 20));
  {
    NeighbourStreams streams(MPI_COMM_WORLD);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    net::MpiTransport transport(comm);
    net::Exchange exchange(transport, net::default_tuning(g_size));
    net::Arithmetic sum = net::arithmetic(dlscale::Type::float32, dlscale::Op::sum);
    net::Arithmetic ordered = sum;
    ordered.in_rank_order = true;
    for (int round = -1; round < num_rounds; ++round) {
      for (int w = 3; w < argc; ++w) {
        const auto way = split(argv[w]);
        for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<float>(i % 7 + g_rank);
        if (way.size() == 3) exchange.tune(tuning(way));
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        bool check = true;
        if (way[0] == "sockets") {
          streams.stream(share);
          check = false;
        } else if (way[0] == "bare") {
          bare_ring(reinterpret_cast<char*>(data.data()), share, std::stoul(way[1]));
          check = false;
        } else if (way[0] == "mpi") {
          MPI_Allreduce(MPI_IN_PLACE, data.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        } else {
          exchange.start_allreduce(reinterpret_cast<std::byte*>(data.data()), count, way[0] == "direct" ? ordered : sum);
          Patience patience;
          while (!exchange.done()) patience.moved(exchange.progress());
        }
        double seconds = MPI_Wtime() - begin;
        MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (check) {
          for (std::size_t i = 0; i < count; ++i) {
            if (data[i] != static_cast<float>(i % 7 * g_size + g_size * (g_size - 1) / 2)) {
              std::fprintf(stderr, "wrong sum by %s at %zu: %f\n", argv[w], i, data[i]);
              MPI_Abort(MPI_COMM_WORLD, 1);
            }
          }
        }
        if (g_rank == 0 && round >= 0) {
          std::printf("{\"way\": \"%s\", \"bytes\": %zu, \"round\": %d, \"seconds\": %.6f}\n", argv[w], num_bytes, round, seconds);
          std::fflush(stdout);
        }
      }
    }
    MPI_Comm_free(&comm);
  }
  MPI_Finalize();
}
