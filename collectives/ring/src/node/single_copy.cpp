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

constexpr std::uintptr_t kNotCopied = ~std::uintptr_t{0};  // the kernel refuses this buffer

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
  for (const Text& text : bootstrap.everyones(complaint)) {  // by then all have read and written
    if (text.characters[0]) return text.characters;
  }
  return "";
}

SingleCopy::SingleCopy(Rendezvous& rendezvous, Waiting& waiting, const Kernels& kernels, const Watch& watch,
                       int rank, int size, bool in_process, std::size_t piece_bytes)
    : rendezvous_(rendezvous),
      waiting_(waiting),
      kernels_(kernels),
      rank_(rank),
      size_(size),
      processes_(processes_of(watch, size, in_process)),
      piece_bytes_(piece_bytes),
      sources_(static_cast<std::size_t>(size)) {}

// The kernel may refuse memory that it does not manage as pages (of a GPU's driver, or secret). A rank that
// has such finds out by reading from itself, which takes a microsecond, and says so instead of an address.
bool SingleCopy::open(Operation operation, const Job& job, std::size_t count) {
  const auto input = reinterpret_cast<std::uintptr_t>(job.input);
  std::byte first{};
  const bool copied = !input || fetch_from(getpid(), &first, input, 1) == 0;
  const std::uintptr_t word = copied ? input - job.input_begin * width(job.type) : kNotCopied;
  const int differing = rendezvous_.open(tag_of(operation, count, job.type, job.op), word);
  if (differing != rank_) waiting_.raise_difference(differing);
  const auto& words = rendezvous_.words();
  if (std::find(words.begin(), words.end(), kNotCopied) == words.end()) return true;
  rendezvous_.close();
  return false;
}

bool SingleCopy::close() {
  rendezvous_.close();
  return true;
}

std::uintptr_t SingleCopy::address_of(int q, Range range, std::size_t element) const {
  return rendezvous_.words()[static_cast<std::size_t>(q)] + range.begin * element;
}

template <typename Move>
void SingleCopy::in_pieces(Range range, std::size_t element, const Move& move) const {
  const std::size_t step = piece_bytes_ / element;
  for (std::size_t begin = range.begin; begin < range.end; begin += step) {
    move(Range{begin, std::min(begin + step, range.end)});
  }
}

void SingleCopy::fetch(int q, std::byte* to, Range range, std::size_t element) {
  between_steps();
  const int error = fetch_from(processes_[static_cast<std::size_t>(q)], to, address_of(q, range, element),
                               range.size() * element);
  if (error) waiting_.raise_unreachable(q, error);
}

void SingleCopy::store(int q, const std::byte* from, Range range, std::size_t element) {
  between_steps();
  const std::size_t num_bytes = range.size() * element;
  const std::uintptr_t to = address_of(q, range, element);
  if (is_slow(reinterpret_cast<std::uintptr_t>(from), to)) {
    std::byte* copy = scratch(static_cast<std::size_t>(rank_), num_bytes, to);
    kernels_.copy(copy, from, num_bytes);
    from = copy;
  }
  const int error = store_to(processes_[static_cast<std::size_t>(q)], from, to, num_bytes);
  if (error) waiting_.raise_unreachable(q, error);
}

// Where the kernel would copy slowly, piece by piece through memory that lies better.
void SingleCopy::fetch_result(const Job& job, int q, Range range) {
  const std::size_t element = width(job.type);
  if (!is_slow(address_of(q, range, element), reinterpret_cast<std::uintptr_t>(job.out(range)))) {
    return fetch(q, job.out(range), range, element);
  }
  in_pieces(range, element, [&](Range piece) {
    std::byte* copy = scratch(0, piece_bytes_, address_of(q, piece, element));
    fetch(q, copy, piece, element);
    kernels_.copy(job.out(piece), copy, job.bytes(piece));
  });
}

void SingleCopy::reduce_piece(const Job& job, Range piece) {
  const std::size_t element = width(job.type);
  // The last place first: taking one that was not there yet may move the others.
  scratch(sources_.size() - 1, piece_bytes_, kPage - 1);
  for (int i = 0; i < size_; ++i) {
    const int q = (rank_ + i) % size_;
    const auto p = static_cast<std::size_t>(q);
    if (q == rank_) {
      sources_[p] = job.in(piece);
      continue;
    }
    std::byte* to = scratch(p, piece_bytes_, address_of(q, piece, element));
    fetch(q, to, piece, element);
    sources_[p] = to;
  }
  reduce(kernels_, job.type, job.op,
         {job.out(piece), nullptr, sources_.data(), sources_.size(), piece.size(), job.scale, false});
}

bool SingleCopy::allreduce(const Job& job, std::size_t count) {
  if (!open(Operation::allreduce, job, count)) return false;
  const std::size_t element = width(job.type);
  in_pieces(part_in_lines(count, rank_, size_, job.type), element, [&](Range piece) {
    reduce_piece(job, piece);
    for (int i = 1; i < size_; ++i) store((rank_ + i) % size_, job.out(piece), piece, element);
  });
  return close();
}

bool SingleCopy::reduce_scatter(const Job& job, const std::vector<Range>& blocks) {
  if (!open(Operation::reduce_scatter, job, count_of(blocks))) return false;
  in_pieces(blocks[static_cast<std::size_t>(rank_)], width(job.type),
            [&](Range piece) { reduce_piece(job, piece); });
  return close();
}

bool SingleCopy::allgather(const Job& job, const std::vector<Range>& blocks) {
  if (!open(Operation::allgather, job, count_of(blocks))) return false;
  const Range own = blocks[static_cast<std::size_t>(rank_)];
  if (own.size() && job.out(own) != job.in(own)) kernels_.copy(job.out(own), job.in(own), job.bytes(own));
  for (int i = 1; i < size_; ++i) {
    const int q = (rank_ + i) % size_;
    const Range block = blocks[static_cast<std::size_t>(q)];
    if (block.size()) fetch_result(job, q, block);
  }
  return close();
}

// Nobody waits idly: the root stores a P-th part in the memory of each, which is as much as every other rank
// fetches of the rest.
bool SingleCopy::broadcast(const Job& job, const std::vector<Range>& blocks) {
  if (!open(Operation::broadcast, job, count_of(blocks))) return false;
  const std::size_t element = width(job.type), page = kPage / element;
  const auto root = static_cast<std::size_t>(
      std::find_if(blocks.begin(), blocks.end(), [](Range block) { return block.size() > 0; }) -
      blocks.begin());
  const Range whole = blocks[root];
  const std::size_t stored = whole.size() / static_cast<std::size_t>(size_) / page * page;
  const Range fetched{whole.begin, whole.end - stored}, rest{fetched.end, whole.end};
  if (static_cast<std::size_t>(rank_) != root) {
    if (fetched.size()) fetch_result(job, static_cast<int>(root), fetched);
    return close();
  }
  for (int i = 1; i < size_ && rest.size(); ++i) {
    const int q = (rank_ + i) % size_;
    if (is_slow(reinterpret_cast<std::uintptr_t>(job.in(rest)), address_of(q, rest, element))) {
      in_pieces(rest, element, [&](Range piece) { store(q, job.in(piece), piece, element); });
    } else {
      store(q, job.in(rest), rest, element);
    }
  }
  return close();
}

}  // namespace dlscale
