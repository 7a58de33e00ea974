// How the ranks of a node talk before they share memory.
#pragma once

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace dlscale {

// Why memory cannot be shared, the same on all ranks: nothing is under way.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A small exchange among ranks that are about to share memory: MPI in a program, a mailbox where the ranks
// are threads of one process (so that sanitizers see both sides of every access).
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The ranks are threads of one process: they share memory already.
  virtual bool in_process() const = 0;
  // all[q] becomes rank q's mine; collective.
  virtual void allgather(const void* mine, void* all, std::size_t num_bytes) = 0;

  template <typename T>
  std::vector<T> everyones(const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(size()));
    allgather(&mine, all.data(), sizeof(T));
    return all;
  }

  // Throws Refusal on every rank if any rank has something to complain about, with the first complaint.
  void agree(const std::string& complaint) {
    struct Text {
      char characters[400];
    };
    Text mine{};
    complaint.copy(mine.characters, sizeof(mine.characters) - 1);
    const std::vector<Text> all = everyones(mine);
    for (std::size_t q = 0; q < all.size(); ++q) {
      if (all[q].characters[0] == '\0') continue;
      throw Refusal("local rank " + std::to_string(q) + ": " + all[q].characters);
    }
  }
};

}  // namespace dlscale
