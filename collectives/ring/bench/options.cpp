#include "options.hpp"

#include <sstream>
#include <stdexcept>

namespace bench {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) found.push_back(word);
  return found;
}

}  // namespace

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--output") {
      options.output = value;
    } else if (name == "--flags") {
      options.flags = value;
    } else if (name == "--operations") {
      options.operations = words(value);
    } else if (name == "--sizes") {
      for (const std::string& word : words(value)) options.sizes.push_back(std::stoull(word));
    } else if (name == "--modes") {
      options.modes = words(value);
    } else if (name == "--cpus") {
      for (const std::string& word : words(value)) options.cpus.push_back(std::stoi(word));
    } else if (name == "--cold-bytes") {
      options.cold_bytes = std::stoull(value);
    } else if (name == "--seconds") {
      options.seconds = std::stod(value);
    } else if (name == "--rounds") {
      options.rounds = std::stoi(value);
    } else if (name == "--min-calls") {
      options.min_calls = std::stoi(value);
    } else if (name == "--max-calls") {
      options.max_calls = std::stoi(value);
    } else if (name == "--warmup-calls") {
      options.warmup_calls = std::stoi(value);
    } else if (name == "--volume") {
      options.volume = std::stoull(value);
    } else if (name == "--barrier") {
      options.barrier = value;
    } else if (name == "--thread-level") {
      options.thread_level = value;
    } else if (name == "--limit") {
      options.limit = static_cast<unsigned>(std::stoul(value));
    } else {
      throw std::invalid_argument("no option " + name);
    }
  }
  if (argc % 2 == 0) throw std::invalid_argument("an option without a value");
  if (options.output.empty() || options.flags.empty() || options.operations.empty() ||
      options.sizes.empty() || options.modes.empty() || options.cpus.empty()) {
    throw std::invalid_argument("give --output, --flags, --operations, --sizes, --modes and --cpus");
  }
  return options;
}

}  // namespace bench
