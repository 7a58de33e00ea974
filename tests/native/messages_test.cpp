// Messages from every rank to every other, in random order, while ranks hesitate, and while another thread of
// each does other operations.
//
//   messages_test [ROUNDS] [MESSAGES]
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "complaints.hpp"
#include "messages/messenger.hpp"
#include "node/node.hpp"
#include "threads.hpp"

using namespace dlscale;
using namespace dlscale::testing;

namespace {

Complaints g_complaints;

constexpr std::int64_t kFromAny = 7;  // the tag of messages that are received from any rank

struct Planned {
  int from, to;
  std::int64_t tag;
  std::size_t num_bytes;
  std::uint64_t seed;
};

std::byte value(std::uint64_t seed, std::size_t i) {
  return static_cast<std::byte>(seed * 31 + i * 7 + i / 251);
}

std::vector<Planned> plan(int size, std::uint64_t count, std::mt19937_64& chance) {
  const std::size_t lengths[] = {1, 100, 8192, 100'000};
  std::vector<Planned> messages;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t length = chance() % 8 ? chance() % (lengths[chance() % 4] + 1) : lengths[chance() % 4];
    const auto draw = [&] { return static_cast<int>(chance() % static_cast<std::uint64_t>(size)); };
    messages.push_back({draw(), draw(), static_cast<std::int64_t>(chance() % 3), length, i});
    if (chance() % 8 == 0) messages.back().tag = kFromAny, messages.back().num_bytes = 20'000;
  }
  return messages;
}

// In another order, but messages of one sender, receiver and tag in theirs.
std::vector<Planned> shuffled(const std::vector<Planned>& messages, std::mt19937_64& chance) {
  std::map<std::tuple<int, int, std::int64_t>, std::vector<Planned>> in_order;
  for (const Planned& m : messages) in_order[{m.from, m.to, m.tag}].push_back(m);
  for (auto& [key, queue] : in_order) std::reverse(queue.begin(), queue.end());
  std::vector<Planned> result = messages;
  std::shuffle(result.begin(), result.end(), chance);
  for (Planned& m : result) {
    auto& queue = in_order[{m.from, m.to, m.tag}];
    m = queue.back();
    queue.pop_back();
  }
  return result;
}

std::unique_ptr<Messenger> messenger_of(Node& node) {
  Messenger::Setup setup{node.rank(), {}, node.message_waiting(), node.bell(), false, true};
  for (int q = 0; q < node.size(); ++q)
    setup.links.push_back(q == node.rank() ? nullptr : &node.message_link());
  setup.propagate = [&node](const std::exception& error) { node.waiting().note_own_failure(error.what()); };
  return std::make_unique<Messenger>(std::move(setup));
}

struct Begun {
  Planned what;
  bool receives;
  std::vector<std::byte> memory;
  MessageHandle message;
};

void look_at(const Begun& begun, const std::vector<Planned>& all, int rank) {
  if (!begun.receives) return;
  // From any rank: which of its messages it was, its first bytes say.
  const auto came = [&](const Planned& m) {
    if (m.to != rank || m.tag != begun.what.tag || m.from != begun.message->peer ||
        m.num_bytes != begun.memory.size()) {
      return false;
    }
    for (std::size_t i = 0; i < m.num_bytes; ++i) {
      if (begun.memory[i] != value(m.seed, i)) return false;
    }
    return true;
  };
  const bool right =
      begun.what.tag == kFromAny ? std::any_of(all.begin(), all.end(), came) : came(begun.what);
  g_complaints.add_if(!right, "message " + std::to_string(begun.what.seed) + " of " +
                                  std::to_string(begun.what.num_bytes) + " bytes from " +
                                  std::to_string(begun.what.from) + " to " + std::to_string(rank) +
                                  ": other bytes came");
}

// Joined however the rank leaves.
struct Joined {
  std::thread thread;
  ~Joined() { thread.join(); }
};

void exchange(Node& node, Messenger& messenger, const std::vector<Planned>& all, std::uint64_t seed,
              bool beside) {
  const int rank = node.rank();
  std::mt19937_64 chance(seed * 100 + static_cast<std::uint64_t>(rank));
  Hesitation hesitate(chance());
  const Joined operations{std::thread([&] {
    for (std::uint64_t i = 0; beside && i < all.size(); ++i) {
      float one = 1;
      node.allreduce(reinterpret_cast<std::byte*>(&one), 1, Type::float32, Op::sum, 1.0);
      g_complaints.add_if(one != static_cast<float>(node.size()), "a sum beside messages is wrong");
    }
  })};
  std::vector<Begun> begun;
  begun.reserve(2 * all.size());
  for (const Planned& m : shuffled(all, chance)) {
    for (const bool receives : {true, false}) {
      if (receives ? m.to != rank : m.from != rank) continue;
      hesitate();
      begun.push_back({m, receives, std::vector<std::byte>(m.num_bytes), nullptr});
      Begun& last = begun.back();
      if (receives) {
        const int source = m.tag == kFromAny ? Messenger::kAnySource : m.from;
        last.message = messenger.receive(source, m.tag, last.memory.data(), m.num_bytes, true);
      } else {
        for (std::size_t i = 0; i < m.num_bytes; ++i) last.memory[i] = value(m.seed, i);
        last.message = messenger.send(m.to, m.tag, last.memory.data(), m.num_bytes, true);
      }
    }
  }
  std::shuffle(begun.begin(), begun.end(), chance);
  for (const Begun& each : begun) {
    hesitate();
    if (chance() % 4 == 0) {
      while (!each.message->done.load(std::memory_order_acquire)) sched_yield();
    } else if (!messenger.wait(*each.message)) {
      g_complaints.add("a message without a limit was given up");
    }
    look_at(each, all, rank);
  }
}

void round(int size, std::uint64_t seed, std::uint64_t num_messages) {
  on_ranks(size, [&](ThreadBootstrap& bootstrap) {
    std::mt19937_64 common(seed);
    NodeOptions options;
    options.timeout_seconds = 60;
    options.single_copy = common() % 2;
    const bool oversubscribed = common() % 2, beside = common() % 2;
    const std::vector<Planned> all = plan(size, num_messages, common);
    Node node(bootstrap, names_of_ranks(size), oversubscribed, options, kernels());
    auto messenger = messenger_of(node);
    exchange(node, *messenger, all, seed, beside);
    messenger->close();
    bootstrap.wait_for_all();
  });
}

// What each rank said after its `call`.
template <typename Call>
std::vector<std::string> said(int size, double timeout_seconds, Call call) {
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  on_ranks(size, [&](ThreadBootstrap& bootstrap) {
    NodeOptions options;
    options.timeout_seconds = timeout_seconds;
    Node node(bootstrap, names_of_ranks(size), true, options, kernels());
    auto messenger = messenger_of(node);
    try {
      call(*messenger, bootstrap.rank());
    } catch (const std::exception& error) {
      texts[static_cast<std::size_t>(bootstrap.rank())] = error.what();
    }
    bootstrap.wait_for_all();
    messenger->close();
    bootstrap.wait_for_all();
  });
  return texts;
}

void expect(const std::vector<std::string>& texts, const std::vector<std::string>& wanted,
            const char* where) {
  for (std::size_t r = 0; r < texts.size(); ++r) {
    g_complaints.add_if(wanted[r].empty() ? !texts[r].empty() : texts[r].find(wanted[r]) == std::string::npos,
                        std::string(where) + ": rank " + std::to_string(r) + " said '" + texts[r] + "'");
  }
}

void failures() {
  std::byte bytes[2][100'000];
  expect(said(2, 0.3,
              [&](Messenger& messenger, int rank) {
                if (rank == 0) messenger.wait(*messenger.receive(1, 3, bytes[0], 10, false));
              }),
         {"rank 1 is late: it did not send a message with tag 3 to rank 0 within 0.3 s", ""}, "no send");
  expect(said(2, 0.3,
              [&](Messenger& messenger, int rank) {
                if (rank == 0) messenger.wait(*messenger.send(1, 3, bytes[0], sizeof(bytes[0]), false));
              }),
         {"rank 1 is late: it did not take a message with tag 3 of rank 0", ""}, "no receive");
  for (const std::size_t length : {std::size_t{10}, sizeof(bytes[0])}) {
    const std::string wanted = "rank 0 sent " + std::to_string(length) + " bytes to rank 1, which expected 5";
    expect(said(2, 5,
                [&](Messenger& messenger, int rank) {
                  if (rank == 0) {
                    messenger.wait(*messenger.send(1, 0, bytes[0], length, false));
                    messenger.wait(*messenger.receive(1, 0, bytes[0], 1, false));
                  } else {
                    messenger.wait(*messenger.receive(0, 0, bytes[1], 5, false));
                  }
                }),
           {wanted, wanted}, "other lengths");
  }
  expect(said(1, 5,
              [&](Messenger& messenger, int) {
                const MessageHandle message = messenger.receive(0, 0, bytes[0], 5, true);
                messenger.close();
                messenger.wait(*message);
              }),
         {"closed"}, "closed");
}

}  // namespace

int main(int argc, char** argv) {
  const int num_rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  const auto num_messages = static_cast<std::uint64_t>(argc > 2 ? std::atoi(argv[2]) : 200);
  for (int r = 0; r < num_rounds; ++r) round(1 + r % 4, static_cast<std::uint64_t>(r) + 1, num_messages);
  failures();
  return g_complaints.verdict("messages");
}
