#include "single_copy.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace dlscale {
namespace {

constexpr std::uintptr_t kNothingLent = ~std::uintptr_t{0};

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

// The kernel may stop early, at most 2 GiB on.
int transfer(Transfer move, pid_t process, std::byte* here, std::uintptr_t there, std::size_t num_bytes) {
  while (num_bytes) {
    const iovec mine{here, num_bytes};
    const iovec theirs{reinterpret_cast<void*>(there), num_bytes};
    const ssize_t moved = move(process, &mine, 1, &theirs, 1, 0);
    if (moved < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (moved == 0) return EFAULT;
    here += moved;
    there += static_cast<std::size_t>(moved);
    num_bytes -= static_cast<std::size_t>(moved);
  }
  return 0;
}

constexpr std::size_t kPage = 4096, kShortDistance = 32;

// 0, or an error number.
int fetch_from(pid_t process, std::byte* to, std::uintptr_t from, std::size_t num_bytes) {
  return transfer(process_vm_readv, process, to, from, num_bytes);
}

int store_to(pid_t process, const std::byte* from, std::uintptr_t to, std::size_t num_bytes) {
  return transfer(process_vm_writev, process, const_cast<std::byte*>(from), to, num_bytes);
}

// Whether the kernel's copies (`rep movsb`) take four to seven times as long as others: on AMD's processors,
// where the target lies, within pages, a few bytes behind what is read.
bool is_slow(std::uintptr_t from, std::uintptr_t to) {
  const std::size_t distance = (to - from) % kPage;
  return distance > 0 && distance < kShortDistance;
}

// Memory of this thread for piece p of several, which lies within its page as `like` does: between such
// places the kernel copies whole pages, and never slowly.
std::byte* scratch(std::size_t p, std::size_t piece_bytes, std::uintptr_t like) {
  thread_local std::vector<std::byte> memory;
  const std::size_t apart = piece_bytes / kPage * kPage + 2 * kPage;
  if (memory.size() < (p + 1) * apart + kPage) memory.resize((p + 1) * apart + kPage);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (kPage - begin % kPage) % kPage + p * apart + like % kPage;
}

// The process of each local rank: this one, where ranks are its threads.
std::vector<pid_t> processes_of(const Watch& watch, int size, bool in_process) {
  std::vector<pid_t> all;
  for (int q = 0; q < size; ++q) all.push_back(in_process ? getpid() : watch.process(q));
  return all;
}

std::size_t count_of(const std::vector<Range>& blocks) {
  std::size_t count = 0;
  for (const Range& block : blocks) count += block.size();
  return count;
}

}  // namespace

std::string obstacle_to_single_copies(Bootstrap& bootstrap, const Watch& watch) {
  struct Offer {
    std::uint64_t word;
    std::uintptr_t word_at, marks_at;
  };
  const auto size = static_cast<std::size_t>(bootstrap.size());
  const auto rank = static_cast<std::size_t>(bootstrap.rank());
  const std::vector<pid_t> processes = processes_of(watch, bootstrap.size(), bootstrap.in_process());
  std::uint64_t word = 0x9e3779b97f4a7c15u * (rank + 1);
  std::vector<char> marks(size, 0);
  marks[rank] = 1;
  const Offer mine{word, reinterpret_cast<std::uintptr_t>(&word),
                   reinterpret_cast<std::uintptr_t>(marks.data())};
  const std::vector<Offer> offers = bootstrap.everyones(mine);
  struct Text {
    char characters[120];
  };
  Text complaint{};
  const auto complain = [&](const std::string& text) {
    text.copy(complaint.characters, sizeof(complaint.characters) - 1);
  };
  for (std::size_t q = 0; q < size; ++q) {
    if (q == rank) continue;
    std::uint64_t found = 0;
    const std::byte mark{1};
    if (!processes[q]) {
      complain("ranks are in different process namespaces");
    } else if (const int error = fetch_from(processes[q], reinterpret_cast<std::byte*>(&found),
                                            offers[q].word_at, sizeof(found))) {
      complain(std::string("process_vm_readv: ") + std::strerror(error));
    } else if (found != offers[q].word) {
      complain("process_vm_readv read the memory of another process");
    } else if (const int failed = store_to(processes[q], &mark, offers[q].marks_at + rank, 1)) {
      complain(std::string("process_vm_writev: ") + std::strerror(failed));
    }
  }
  const std::vector<Text> complaints = bootstrap.everyones(complaint);
  // All have written by now.
  const bool marked = std::all_of(marks.begin(), marks.end(), [](char m) { return m; });
  const std::vector<char> good = bootstrap.everyones(static_cast<char>(marked));
  for (const Text& text : complaints) {
    if (text.characters[0]) return text.characters;
  }
  const bool all_good = std::all_of(good.begin(), good.end(), [](char g) { return g; });
  return all_good ? "" : "process_vm_writev wrote to the memory of another process";
}

SingleCopy::SingleCopy(NodeMemory& memory, Waiting& waiting, const Kernels& kernels, const Watch& watch,
                       int rank, int size, bool in_process, std::size_t chunk_bytes)
    : memory_(memory),
      waiting_(waiting),
      kernels_(kernels),
      rank_(rank),
      size_(size),
      processes_(processes_of(watch, size, in_process)),
      piece_bytes_(std::max<std::size_t>(chunk_bytes / static_cast<std::size_t>(size) / kLine, 1) * kLine),
      sources_(static_cast<std::size_t>(size)),
      lent_(static_cast<std::size_t>(size)) {}

// Two places by turns: who lends for operation n + 2 has seen all give back what n + 1 took, and so end n.
//
// The kernel may refuse memory that it does not manage as pages (of a GPU's driver, or secret). Whoever has
// such and is asked before finds it out by reading from itself, lends nothing, and all know.
bool SingleCopy::lend(const Job& job, std::size_t count, std::size_t kind, Refusal refusal) {
  const std::uint64_t turn = num_operations_;
  const std::uint32_t tag = tag_of(count, job.type, job.op, kind);
  ControlBlock& own = memory_.control_block(rank_);
  // Where element 0 would be, were it there.
  const auto input = reinterpret_cast<std::uintptr_t>(job.input);
  std::byte first{};
  const bool lendable = refusal == Refusal::during || !input || fetch_from(getpid(), &first, input, 1) == 0;
  own.lending.words[turn % 2] = lendable ? input - job.input_begin * width(job.type) : kNothingLent;
  own.lending.tags[turn % 4].store(tag, std::memory_order_relaxed);
  waiting_.announce(&own.lending, turn + 1);
  bool all_lent = lendable;
  for (int i = 1; i < size_; ++i) {
    const int q = (rank_ + i) % size_;
    ControlBlock& other = memory_.control_block(q);
    waiting_.until(&other.lending, turn + 1, q);
    waiting_.compare(tag, other.lending.tags[turn % 4].load(std::memory_order_relaxed), q);
    lent_[static_cast<std::size_t>(q)] = other.lending.words[turn % 2];
    all_lent = all_lent && other.lending.words[turn % 2] != kNothingLent;
  }
  if (!all_lent) give_back(true);
  return all_lent;
}

// Whether the kernel refused no rank anything.
bool SingleCopy::give_back(bool refused) {
  const std::uint64_t turn = num_operations_++;
  ControlBlock& own = memory_.control_block(rank_);
  own.given_back.words[turn % 2] = refused;
  waiting_.announce(&own.given_back, num_operations_);
  for (int i = 1; i < size_; ++i) {
    const int q = (rank_ + i) % size_;
    ControlBlock& other = memory_.control_block(q);
    waiting_.until(&other.given_back, num_operations_, q);
    refused = refused || other.given_back.words[turn % 2];
  }
  return !refused;
}

std::uintptr_t SingleCopy::lent_at(int q, Range range, std::size_t element) const {
  return lent_[static_cast<std::size_t>(q)] + range.begin * element;
}

bool SingleCopy::has_copied(int q, int error) const {
  if (error && error != EFAULT) waiting_.raise_unreachable(q, error);
  return !error;
}

void SingleCopy::require(bool copied, int q) const {
  if (!copied) waiting_.raise_unreachable(q, EFAULT);
}

bool SingleCopy::fetch(int q, std::byte* to, Range range, std::size_t element) {
  return has_copied(q, fetch_from(processes_[static_cast<std::size_t>(q)], to, lent_at(q, range, element),
                                  range.size() * element));
}

bool SingleCopy::store(int q, const std::byte* from, Range range, std::size_t element) {
  const std::size_t num_bytes = range.size() * element;
  const std::uintptr_t to = lent_at(q, range, element);
  if (is_slow(reinterpret_cast<std::uintptr_t>(from), to)) {
    std::byte* copy = scratch(static_cast<std::size_t>(rank_), num_bytes, to);
    kernels_.copy(copy, from, num_bytes);
    from = copy;
  }
  return has_copied(q, store_to(processes_[static_cast<std::size_t>(q)], from, to, num_bytes));
}

void SingleCopy::reduce_piece(const Job& job, Range piece) {
  // The last place first: taking one that was not there yet may move the others.
  scratch(sources_.size() - 1, piece_bytes_, kPage - 1);
  for (int i = 0; i < size_; ++i) {
    const int q = (rank_ + i) % size_;
    const auto p = static_cast<std::size_t>(q);
    if (q == rank_) {
      sources_[p] = job.in(piece);
      continue;
    }
    std::byte* to = scratch(p, piece_bytes_, lent_at(q, piece, width(job.type)));
    require(fetch(q, to, piece, width(job.type)), q);
    sources_[p] = to;
  }
  reduce(kernels_, job.type, job.op,
         {job.out(piece), nullptr, sources_.data(), sources_.size(), piece.size(), job.scale, false});
}

bool SingleCopy::allreduce(const Job& job, std::size_t count) {
  if (!lend(job, count, 0, Refusal::before)) return false;
  const std::size_t element = width(job.type), line = kLine / element, lines = (count + line - 1) / line;
  const Range own = part({0, lines}, static_cast<std::size_t>(rank_), static_cast<std::size_t>(size_));
  const Range mine{std::min(count, own.begin * line), std::min(count, own.end * line)};
  for (std::size_t begin = mine.begin; begin < mine.end; begin += piece_bytes_ / element) {
    const Range piece{begin, std::min(begin + piece_bytes_ / element, mine.end)};
    reduce_piece(job, piece);
    for (int i = 1; i < size_; ++i) {
      const int q = (rank_ + i) % size_;
      require(store(q, job.out(piece), piece, element), q);
    }
  }
  return give_back(false);
}

bool SingleCopy::reduce_scatter(const Job& job, const std::vector<Range>& blocks) {
  if (!lend(job, count_of(blocks), 1, Refusal::before)) return false;
  const std::size_t step = piece_bytes_ / width(job.type);
  const Range own = blocks[static_cast<std::size_t>(rank_)];
  for (std::size_t begin = own.begin; begin < own.end; begin += step) {
    reduce_piece(job, {begin, std::min(begin + step, own.end)});
  }
  return give_back(false);
}

// Where the kernel would copy slowly, piece by piece through memory that lies better.
bool SingleCopy::fetch_result(const Job& job, int q, Range range) {
  const std::size_t element = width(job.type);
  const std::uintptr_t from = lent_at(q, range, element);
  if (!is_slow(from, reinterpret_cast<std::uintptr_t>(job.out(range)))) {
    return fetch(q, job.out(range), range, element);
  }
  for (std::size_t begin = range.begin; begin < range.end; begin += piece_bytes_ / element) {
    const Range piece{begin, std::min(begin + piece_bytes_ / element, range.end)};
    std::byte* copy = scratch(0, piece_bytes_, lent_at(q, piece, element));
    if (!fetch(q, copy, piece, element)) return false;
    kernels_.copy(job.out(piece), copy, piece.size() * element);
  }
  return true;
}

bool SingleCopy::store_input(const Job& job, int q, Range range) {
  const std::size_t element = width(job.type);
  const bool slow = is_slow(reinterpret_cast<std::uintptr_t>(job.in(range)), lent_at(q, range, element));
  const std::size_t step = slow ? piece_bytes_ / element : range.size();
  for (std::size_t begin = range.begin; begin < range.end; begin += step) {
    const Range piece{begin, std::min(begin + step, range.end)};
    if (!store(q, job.in(piece), piece, element)) return false;
  }
  return true;
}

bool SingleCopy::allgather(const Job& job, const std::vector<Range>& blocks) {
  const std::size_t element = width(job.type);
  lend(job, count_of(blocks), 1, Refusal::during);
  const Range own = blocks[static_cast<std::size_t>(rank_)];
  if (own.size() && job.out(own) != job.in(own))
    kernels_.copy(job.out(own), job.in(own), own.size() * element);
  bool refused = false;
  for (int i = 1; i < size_; ++i) {
    const int q = (rank_ + i) % size_;
    const Range block = blocks[static_cast<std::size_t>(q)];
    if (block.size() && !fetch_result(job, q, block)) refused = true;
  }
  return give_back(refused);
}

// Nobody waits idly: the root stores a P-th part in the memory of each, which is as much as every other rank
// fetches of the rest.
bool SingleCopy::broadcast(const Job& job, const std::vector<Range>& blocks) {
  const std::size_t element = width(job.type), page = kPage / element;
  lend(job, count_of(blocks), 1, Refusal::during);
  std::size_t root = 0;
  while (!blocks[root].size()) ++root;
  const Range whole = blocks[root];
  const std::size_t stored = whole.size() / static_cast<std::size_t>(size_) / page * page;
  const Range fetched{whole.begin, whole.end - stored}, rest{fetched.end, whole.end};
  if (static_cast<std::size_t>(rank_) != root) {
    return give_back(fetched.size() && !fetch_result(job, static_cast<int>(root), fetched));
  }
  bool refused = false;
  for (int i = 1; i < size_; ++i) {
    if (rest.size() && !store_input(job, (rank_ + i) % size_, rest)) refused = true;
  }
  return give_back(refused);
}

}  // namespace dlscale
