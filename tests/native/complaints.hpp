// What went wrong, from all threads, for the end of the program.
#pragma once

#include <cstdio>
#include <mutex>
#include <string>

namespace dlscale::testing {

class Complaints {
 public:
  // Prints the first few.
  void add(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (++num_ <= 20) std::fprintf(stderr, "%s\n", text.c_str());
  }
  void add_if(bool wrong, const std::string& text) {
    if (wrong) add(text);
  }

  // The exit status of the program; `what` says what was checked.
  int verdict(const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::printf("%s: %s\n", num_ ? "FAILED" : "ok", what.c_str());
    return num_ ? 1 : 0;
  }

 private:
  std::mutex mutex_;
  int num_ = 0;
};

}  // namespace dlscale::testing
