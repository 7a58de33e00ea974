// The exchange of TensorFlow's gradients without TensorFlow: buckets that come in any order, from several
// threads, over collectives that take their time, keep to their order and come back complete.
//
//   gradients_test [ROUNDS]
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "complaints.hpp"
#include "exchange.hpp"

using namespace dlscale;
using dlscale::testing::Complaints;

namespace {

Complaints g_complaints;

// Doubles what it is given, after a nap; remembers the order by the first number of each call; fails if told
// to.
class Doubling {
 public:
  Doubling() : table_{this, &allreduce, &last_error} {}

  const DlscaleCollective* table() const { return &table_; }
  const std::vector<double>& firsts() const { return firsts_; }
  void fail_after(int num_calls) { num_left_ = num_calls; }

 private:
  static int allreduce(void* context, void* data, std::size_t count, int type, int op) {
    auto& self = *static_cast<Doubling*>(context);
    g_complaints.add_if(op != kDlscaleAverage, "something else than an average was asked for");
    g_complaints.add_if(self.busy_.exchange(true), "two calls of one collective at once");
    if (self.num_left_-- == 0) {
      self.busy_ = false;
      return 1;
    }
    const timespec nap{0, static_cast<long>(self.chance_() % 200'000)};
    nanosleep(&nap, nullptr);
    if (type == kDlscaleFloat32) {
      self.twice(static_cast<float*>(data), count);
    } else {
      self.twice(static_cast<double*>(data), count);
    }
    self.busy_ = false;
    return 0;
  }

  static const char* last_error(void*) { return "rank 1 is dead"; }

  template <typename T>
  void twice(T* data, std::size_t count) {
    if (count) firsts_.push_back(data[0]);
    for (std::size_t i = 0; i < count; ++i) data[i] *= 2;
  }

  DlscaleCollective table_;
  std::vector<double> firsts_;
  std::atomic<bool> busy_{false};
  std::mt19937 chance_{7};
  int num_left_ = -1;
};

// A bucket of arrays whose numbers all differ; every other array goes to memory of its own.
class Bucket {
 public:
  Bucket(std::size_t number, std::mt19937& chance) : number_(number) {
    const std::size_t num_arrays = 1 + chance() % 4;
    for (std::size_t i = 0; i < num_arrays; ++i) {
      arrays_.emplace_back(1 + chance() % 300);
      std::iota(arrays_.back().begin(), arrays_.back().end(), first(i));
      targets_.emplace_back(i % 2 ? arrays_.back().size() : 0);
    }
  }

  // The bucket that a number belongs to.
  static std::size_t number_of(double number) { return static_cast<std::size_t>(number - 1) / 10'000; }

  float first(std::size_t array) const { return static_cast<float>(1 + number_ * 10'000 + array * 1'000); }

  std::vector<Piece> pieces() {
    std::vector<Piece> made;
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      auto* source = reinterpret_cast<std::byte*>(arrays_[i].data());
      auto* target = targets_[i].empty() ? source : reinterpret_cast<std::byte*>(targets_[i].data());
      made.push_back({source, target, arrays_[i].size() * sizeof(float), kDlscaleFloat32});
    }
    return made;
  }

  void check() const {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      const std::vector<float>& found = targets_[i].empty() ? arrays_[i] : targets_[i];
      for (std::size_t k = 0; k < found.size(); ++k) {
        const float expected = 2 * (first(i) + static_cast<float>(k));
        if (found[k] != expected) {
          return g_complaints.add("bucket " + std::to_string(number_) + ", array " + std::to_string(i) +
                                  ": " + std::to_string(found[k]) + " instead of " +
                                  std::to_string(expected));
        }
      }
    }
  }

 private:
  std::size_t number_;
  std::vector<std::vector<float>> arrays_, targets_;
};

struct Setup {
  Setup(std::size_t num_teams, bool threads)
      : collectives(num_teams), stagings(num_teams, std::vector<std::byte>(256)) {
    std::vector<Team> teams;
    for (std::size_t i = 0; i < num_teams; ++i) {
      teams.push_back({collectives[i].table(), stagings[i].data(), stagings[i].size()});
    }
    exchange = std::make_unique<Exchange>(std::move(teams), threads);
  }

  std::vector<Doubling> collectives;
  std::vector<std::vector<std::byte>> stagings;
  std::unique_ptr<Exchange> exchange;  // ends its threads before the rest goes
};

void steps_with_threads(std::size_t num_teams, std::mt19937& chance) {
  Setup setup(num_teams, true);
  const std::size_t num_buckets = 1 + chance() % 9;
  for (int step = 0; step < 5; ++step) {
    std::vector<Bucket> buckets;
    for (std::size_t i = 0; i < num_buckets; ++i) buckets.emplace_back(i, chance);
    std::vector<std::size_t> order(num_buckets);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), chance);
    std::atomic<std::size_t> next{0};
    const auto send = [&] {
      for (std::size_t i; (i = next++) < num_buckets;) {
        setup.exchange->send(order[i], num_buckets, buckets[order[i]].pieces(),
                             {std::make_shared<std::size_t>(order[i])});
      }
    };
    std::thread other(send);
    send();
    other.join();
    if (step % 2) setup.exchange->synchronize();
    const std::vector<Exchange::Keeper> kept = setup.exchange->wait();
    for (std::size_t i = 0; i < num_buckets; ++i) {
      g_complaints.add_if(*static_cast<std::size_t*>(kept[i].get()) != i,
                          "keepers come back in another order");
      buckets[i].check();
    }
  }
  for (std::size_t team = 0; team < num_teams; ++team) {
    // Within a step a team's buckets ascend, and so they descend at most at the beginning of each of the 4
    // others.
    int num_descents = 0;
    std::size_t previous = 0;
    for (const double first : setup.collectives[team].firsts()) {
      const std::size_t bucket = Bucket::number_of(first);
      num_descents += bucket < previous;
      previous = bucket;
    }
    g_complaints.add_if(num_descents > 4,
                        "team " + std::to_string(team) + " did not keep to the order of buckets");
  }
}

template <typename Call>
void expect_error(Call call, const std::string& words, const std::string& what) {
  try {
    call();
    g_complaints.add(what + " raised nothing");
  } catch (const std::runtime_error& error) {
    const bool said = std::string(error.what()).find(words) != std::string::npos;
    g_complaints.add_if(!said, what + " said: " + error.what());
  }
}

void steps_in_line(std::mt19937& chance) {
  Setup setup(1, false);
  for (int step = 0; step < 5; ++step) {
    Bucket whole(0, chance), first(0, chance), second(1, chance);
    setup.exchange->average(whole.pieces());
    setup.exchange->send(0, 2, first.pieces(), {});
    setup.exchange->send(1, 2, second.pieces(), {});
    setup.exchange->wait();
    for (const Bucket* bucket : {&whole, &first, &second}) bucket->check();
  }
}

void failures(bool threads, std::mt19937& chance) {
  Bucket first(0, chance), second(1, chance);
  Setup setup(1, threads);
  setup.collectives[0].fail_after(0);
  const auto step = [&] {
    setup.exchange->send(0, 2, first.pieces(), {});
    setup.exchange->send(1, 2, second.pieces(), {});
    setup.exchange->wait();
  };
  expect_error(step, "rank 1 is dead", "a failing collective");
  expect_error(step, "rank 1 is dead", "the step after a failure");
  expect_error([&] { setup.exchange->average(first.pieces()); }, "rank 1 is dead",
               "an average after a failure");
  expect_error([&] { setup.exchange->synchronize(); }, "rank 1 is dead", "synchronize after a failure");
}

void misuse(std::mt19937& chance) {
  for (const bool threads : {false, true}) {
    Bucket bucket(0, chance);
    Setup setup(1, threads);
    setup.exchange->send(0, 2, bucket.pieces(), {});
    expect_error([&] { setup.exchange->send(0, 2, bucket.pieces(), {}); }, "out of turn",
                 "a bucket sent twice");
    expect_error([&] { setup.exchange->send(1, 3, bucket.pieces(), {}); }, "out of turn",
                 "another number of buckets");
    expect_error([&] { setup.exchange->average(bucket.pieces()); }, "under way",
                 "an average between buckets");
  }
}

void closing(std::mt19937& chance) {
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i < 6; ++i) buckets.emplace_back(i, chance);
  Setup setup(2, true);
  for (std::size_t i = 0; i < 6; ++i) setup.exchange->send(i, 6, buckets[i].pieces(), {});
  setup.exchange->close();
  for (const Bucket& bucket : buckets) bucket.check();  // what was sent is exchanged: other ranks wait for it
  expect_error([&] { setup.exchange->send(0, 1, buckets[0].pieces(), {}); }, "closed", "sending after close");
}

}  // namespace

int main(int argc, char** argv) {
  const int num_rounds = argc > 1 ? std::atoi(argv[1]) : 30;
  std::mt19937 chance(11);
  for (int round = 0; round < num_rounds; ++round) {
    steps_with_threads(1 + static_cast<std::size_t>(round) % 3, chance);
    steps_in_line(chance);
    failures(round % 2, chance);
    misuse(chance);
    closing(chance);
  }
  return g_complaints.verdict("gradients in buckets, " + std::to_string(num_rounds) + " rounds");
}
