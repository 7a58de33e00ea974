// Every operation of an exchange on ranks that are threads of this process, for the sanitizers.
//
//   exchange_test MOST_RANKS        ends with 0 and prints "ok" if all is well
#include <sched.h>

#include <cstdio>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "mailboxes.hpp"
#include "operations.hpp"

using namespace dlscale::network;

namespace {

std::mutex g_said;
std::vector<std::string> g_complaints;

void complain(const std::string& text) {
  const std::lock_guard<std::mutex> lock(g_said);
  g_complaints.push_back(text);
}

// Calls `rank(transport, group)` on a thread per rank.
template <typename Rank>
void on_ranks(std::size_t size, Rank rank) {
  Mailboxes boxes;
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        MailboxTransport transport(boxes, {r, size});
        rank(transport, Group{r, size});
      } catch (const std::exception& error) {
        // The others may wait for this rank for ever.
        std::fprintf(stderr, "rank %zu of %zu: %s\n", r, size, error.what());
        std::_Exit(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void everything(std::size_t size) {
  on_ranks(size, [&](Transport& transport, Group group) {
    Exchange exchange(transport, default_tuning(size));
    Checks checks(exchange, group, [] { sched_yield(); });
    for (const Variant& variant : every_variant(size)) {
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, size - 1, size, size + 1, std::size_t{203}}) {
        checks.all(variant, count);
      }
    }
  });
}

// Rank 1 brings fewer elements: rank 0 must report, and neither may hang or touch what is not its own.
void unequal_lengths() {
  on_ranks(2, [](Transport& transport, Group group) {
    std::vector<float> values(group.rank == 0 ? 100 : 90, 1.0F);
    Exchange exchange(transport, default_tuning(2));
    const Arithmetic sum{dlscale::Type::float32, dlscale::Op::sum};
    std::string said;
    try {
      exchange.start_allreduce(reinterpret_cast<std::byte*>(values.data()), values.size(), sum);
      finish(exchange, [] { sched_yield(); });
    } catch (const std::runtime_error& error) {
      said = error.what();
    }
    const char* expected = group.rank == 0 ? "were expected" : "truncated";
    if (said.find(expected) == std::string::npos) complain("unequal lengths: " + said);
    try {
      exchange.start_barrier();
      complain("a failed exchange went on");
    } catch (const std::runtime_error&) {
    }
  });
}

// One rank gives up in the middle: all others hear of it, though only its neighbours talk to it.
void one_gives_up(std::size_t size, std::size_t quitter) {
  on_ranks(size, [&](Transport& transport, Group group) {
    std::vector<float> values(1000);
    Exchange exchange(transport, every_variant(size)[1].tuning);
    const Arithmetic sum{dlscale::Type::float32, dlscale::Op::sum};
    exchange.start_allreduce(reinterpret_cast<std::byte*>(values.data()), values.size(), sum);
    std::string said;
    try {
      if (group.rank == quitter) {
        for (int i = 0; i < 200; ++i) exchange.progress();
        exchange.abort();
      } else {
        finish(exchange, [] { sched_yield(); });
      }
    } catch (const std::runtime_error& error) {
      said = error.what();
    }
    const bool aborted = said.find("aborted this operation") != std::string::npos;
    if (aborted == (group.rank == quitter)) complain("after a rank gave up: " + said);
  });
}

// The others never come: the rank names whom it waits for, and can leave.
void nobody_comes() {
  Mailboxes boxes;
  MailboxTransport transport(boxes, {0, 3});
  std::vector<float> values(1000);
  Exchange exchange(transport, default_tuning(3));
  const Arithmetic sum{dlscale::Type::float32, dlscale::Op::sum};
  exchange.start_allreduce(reinterpret_cast<std::byte*>(values.data()), values.size(), sum);
  for (int i = 0; i < 100; ++i) exchange.progress();
  if (exchange.done() || exchange.waiting_for() < 1) complain("nobody came, and nobody was missed");
  try {
    exchange.start_barrier();
    complain("two operations at once");
  } catch (const std::logic_error&) {
  }
  exchange.abort();
  if (!exchange.done() || exchange.waiting_for() != -1) complain("what was given up is not done");
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t most = argc > 1 ? std::stoul(argv[1]) : 5;
  for (std::size_t size = 1; size <= most; ++size) everything(size);
  unequal_lengths();
  for (std::size_t size = 2; size <= most; ++size) one_gives_up(size, size / 2);
  nobody_comes();
  for (const std::string& complaint : g_complaints) std::fprintf(stderr, "%s\n", complaint.c_str());
  if (!g_complaints.empty()) return 1;
  std::puts("ok");
  return 0;
}
