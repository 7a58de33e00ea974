// What ranks of a node say when they disagree, and when one does not come.
#include <time.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "complaints.hpp"
#include "node/node.hpp"
#include "threads.hpp"

using namespace dlscale;
using namespace dlscale::testing;

namespace {

Complaints g_complaints;

NodeOptions small_areas(double timeout_seconds) {
  NodeOptions options;
  options.timeout_seconds = timeout_seconds;
  options.one_shot_bytes = 512;
  options.chunk_bytes = 1024;
  options.variants = {Variant::staged};
  return options;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// `call(node, rank)` on every rank; what each rank's exception said, empty where there was none.
template <typename Call>
std::vector<std::string> said(int size, double timeout_seconds, bool oversubscribed, Call call) {
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  on_ranks(size, [&](ThreadBootstrap& bootstrap) {
    Node node(bootstrap, names_of_ranks(size), oversubscribed, small_areas(timeout_seconds), kernels());
    node.barrier();
    try {
      call(node, bootstrap.rank());
    } catch (const std::exception& error) {
      texts[static_cast<std::size_t>(bootstrap.rank())] = error.what();
      node.waiting().note_own_failure(error.what());
    }
    bootstrap.wait_for_all();
  });
  return texts;
}

std::byte* bytes(std::vector<float>& values) { return reinterpret_cast<std::byte*>(values.data()); }

// Rank 1 does not come: the others name it, and wait neither shorter nor much longer than they were told.
void somebody_is_late(int size, std::size_t count, bool oversubscribed) {
  const double timeout = 0.3;
  const double start = monotonic_seconds();
  const std::vector<std::string> texts = said(size, timeout, oversubscribed, [&](Node& node, int rank) {
    std::vector<float> values(count);
    if (rank != 1) node.allreduce(bytes(values), count, Type::float32, Op::sum, 1.0);
  });
  const double waited = monotonic_seconds() - start;
  const std::string where = "late, " + std::to_string(count) + " elements on " + std::to_string(size);
  g_complaints.add_if(waited < timeout || waited > timeout + 5, where + ": " + std::to_string(waited) + " s");
  for (int rank = 0; rank < size; ++rank) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    const bool right = rank == 1 ? text.empty() : contains(text, "rank 1 is late");
    g_complaints.add_if(!right, where + ": rank " + std::to_string(rank) + " said '" + text + "'");
  }
}

// Somebody notices; of lengths and parts that differ: tests/contract/test_ring_safety.py.
void operations_differ() {
  const std::vector<std::string> texts = said(2, 0.5, true, [](Node& node, int rank) {
    std::vector<float> values(2000);
    node.allreduce(bytes(values), values.size(), Type::float32, rank ? Op::min : Op::sum, 1.0);
    node.barrier();
  });
  for (const std::string& text : texts)
    g_complaints.add_if(text.empty(), "sum and min: a rank noticed nothing");
}

// A rank that leaves an operation by an exception of its own does not let the others wait for the timeout.
void somebody_fails() {
  const double start = monotonic_seconds();
  const std::vector<std::string> texts = said(3, 30, false, [](Node& node, int rank) {
    if (rank == 2) throw std::runtime_error("rank 2 has an error of its own");
    std::vector<float> values(2000);
    node.allreduce(bytes(values), values.size(), Type::float32, Op::sum, 1.0);
  });
  g_complaints.add_if(monotonic_seconds() - start > 5, "others waited for a rank that had failed");
  for (const int rank : {0, 1}) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    g_complaints.add_if(!contains(text, "rank 2 has an error of its own"),
                        "another rank failed, said '" + text + "'");
  }
}

}  // namespace

int main() {
  for (const int size : {2, 3, 5}) {
    for (const std::size_t count : {3u, 100u, 2000u}) somebody_is_late(size, count, size != 3);
  }
  operations_differ();
  somebody_fails();
  return g_complaints.verdict("failures");
}
