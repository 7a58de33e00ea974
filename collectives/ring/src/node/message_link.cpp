#include "message_link.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernel_copy.hpp"

namespace dlscale {
namespace {

// A receiver and a sender that waits copy half of a message each, in pieces of at most this: every call of
// the kernel costs a microsecond.
constexpr std::size_t kMostPiece = 512 * 1024;
constexpr double kLookSeconds = 1e-3;

std::size_t lines_of(std::size_t num_bytes) { return (num_bytes + kLine - 1) / kLine; }

// The last piece of a copy that nobody has taken yet, from now on the caller's.
using Copy = MessageBlock::Copy;

std::optional<std::uint64_t> take_piece(Copy* copy, std::uint64_t* seen) {
  while (*seen % Copy::kOneCopy) {
    if (copy->pieces.compare_exchange_weak(*seen, *seen - 1, std::memory_order_acq_rel)) {
      return *seen % Copy::kOneCopy - 1;
    }
  }
  return std::nullopt;
}

}  // namespace

MessageLink::MessageLink(NodeMemory& memory, Waiting& waiting, const Watch& watch, std::vector<int> ranks,
                         int rank, bool single_copies, bool in_process)
    : memory_(memory),
      waiting_(waiting),
      processes_(processes_of(watch, static_cast<int>(ranks.size()), in_process)),
      ranks_(std::move(ranks)),
      rank_(rank),
      single_copies_(single_copies),
      sides_(ranks_.size()) {
  local_.resize(static_cast<std::size_t>(*std::max_element(ranks_.begin(), ranks_.end())) + 1, -1);
  for (std::size_t q = 0; q < ranks_.size(); ++q)
    local_[static_cast<std::size_t>(ranks_[q])] = static_cast<int>(q);
}

// Several packets fit into a channel.
std::size_t MessageLink::most_at_once() const { return memory_.channel_bytes() / 8 / kLine * kLine; }

bool MessageLink::send(int peer, const Packet& packet, const std::byte* payload) {
  const int q = local(peer);
  const std::uint64_t num_lines = memory_.channel_bytes() / kLine;
  const std::uint64_t needed = 1 + lines_of(packet.payload_bytes);
  const std::uint64_t read = memory_.message_block(q, rank_).read.number.load(std::memory_order_acquire);
  const std::uint64_t to_end = num_lines - side(q).num_written % num_lines;
  const std::uint64_t skipped = needed > to_end ? to_end : 0;
  if (side(q).num_written - read + skipped + needed > num_lines) return false;
  if (skipped) {
    Packet filler{};
    filler.kind = Packet::Kind::filler;
    write(q, filler, nullptr);
    side(q).num_written += skipped - 1;
  }
  write(q, packet, payload);
  memory_.message_block(rank_, q).written.number.store(side(q).num_written, waiting_.publishing());
  waiting_.ring(bell(q));
  return true;
}

void MessageLink::write(int q, const Packet& packet, const std::byte* payload) {
  std::byte* line = memory_.channel(rank_, q) + side(q).num_written * kLine % memory_.channel_bytes();
  std::memcpy(line, &packet, sizeof(packet));
  if (packet.payload_bytes) std::memcpy(line + kLine, payload, packet.payload_bytes);
  side(q).num_written += 1 + lines_of(packet.payload_bytes);
}

bool MessageLink::receive(const Handler& handle) {
  const std::uint64_t num_lines = memory_.channel_bytes() / kLine;
  bool any = false;
  for (int q = 0; q < static_cast<int>(ranks_.size()); ++q) {
    if (q == rank_) continue;
    Side& own = side(q);
    const auto& written = memory_.message_block(q, rank_).written.number;
    while (own.num_read != written.load(std::memory_order_acquire)) {
      any = true;
      const std::byte* line = memory_.channel(q, rank_) + own.num_read * kLine % memory_.channel_bytes();
      Packet packet;
      std::memcpy(&packet, line, sizeof(packet));
      if (packet.kind == Packet::Kind::filler) {
        own.num_read += num_lines - own.num_read % num_lines;
        continue;
      }
      if (packet.kind == Packet::Kind::taken || packet.kind == Packet::Kind::wanted) --own.num_lent;
      handle(ranks_[static_cast<std::size_t>(q)], packet, line + kLine);
      own.num_read += 1 + lines_of(packet.payload_bytes);
      memory_.message_block(rank_, q).read.number.store(own.num_read, waiting_.publishing());
      waiting_.ring(bell(q));
    }
    if (own.num_lent && help(q)) any = true;
  }
  return any;
}

void MessageLink::lend(int peer, Packet* offer, const std::byte* data, Done /*done*/) {
  ++side(local(peer)).num_lent;
  offer->address = single_copies_ ? reinterpret_cast<std::uintptr_t>(data) : 0;
}

// 0, or the kernel's error. Where it would copy slowly, by way of memory that lies better.
int MessageLink::copy(int q, bool fetches, std::byte* here, std::uintptr_t there,
                      std::size_t num_bytes) const {
  const pid_t process = processes_[static_cast<std::size_t>(q)];
  const auto own = reinterpret_cast<std::uintptr_t>(here);
  if (fetches && is_slow(there, own)) {
    std::byte* between = scratch(0, num_bytes, there);
    const int error = fetch_from(process, between, there, num_bytes);
    if (!error) std::memcpy(here, between, num_bytes);
    return error;
  }
  if (!fetches && is_slow(own, there)) {
    std::byte* between = scratch(0, num_bytes, there);
    std::memcpy(between, here, num_bytes);
    return store_to(process, between, there, num_bytes);
  }
  return fetches ? fetch_from(process, here, there, num_bytes) : store_to(process, here, there, num_bytes);
}

// Fields are written before `pieces` names the copy, and not again before all its pieces are taken and
// copied: who takes a piece has read those of this copy.
bool MessageLink::help(int q) {
  auto& copy = memory_.message_block(q, rank_).copy;
  std::uint64_t seen = copy.pieces.load(std::memory_order_acquire);
  bool helped = false;
  for (;;) {
    const std::uint64_t from = copy.from.load(std::memory_order_relaxed);
    const std::uint64_t to = copy.to.load(std::memory_order_relaxed);
    const std::uint64_t num_bytes = copy.num_bytes.load(std::memory_order_relaxed);
    const std::uint64_t piece_bytes = copy.piece_bytes.load(std::memory_order_relaxed);
    const std::optional<std::uint64_t> piece = take_piece(&copy, &seen);
    if (!piece) return helped;
    helped = true;
    const std::uint64_t begin = *piece * piece_bytes, length = std::min(piece_bytes, num_bytes - begin);
    if (this->copy(q, false, reinterpret_cast<std::byte*>(from + begin), to + begin, length) != 0) {
      copy.refused.store(1, std::memory_order_relaxed);
    }
    copy.num_stored.fetch_add(1, std::memory_order_release);
    seen = copy.pieces.load(std::memory_order_acquire);
  }
}

Link::Fetch MessageLink::fetch(int peer, const Packet& offer, std::byte* to, Done /*done*/) {
  if (!offer.address) return Fetch::refused;
  const int q = local(peer);
  auto& copy = memory_.message_block(rank_, q).copy;
  const std::uint64_t piece_bytes = std::min((offer.num_bytes / 2 + kPage - 1) / kPage * kPage, kMostPiece);
  const std::uint64_t num_pieces = (offer.num_bytes + piece_bytes - 1) / piece_bytes;
  copy.from.store(offer.address, std::memory_order_relaxed);
  copy.to.store(reinterpret_cast<std::uintptr_t>(to), std::memory_order_relaxed);
  copy.num_bytes.store(offer.num_bytes, std::memory_order_relaxed);
  copy.piece_bytes.store(piece_bytes, std::memory_order_relaxed);
  copy.refused.store(0, std::memory_order_relaxed);
  // The last piece is this rank's at once: both reach for the others.
  std::optional<std::uint64_t> piece = num_pieces - 1;
  std::uint64_t seen = ++side(q).num_copies * Copy::kOneCopy + *piece;
  copy.pieces.store(seen, waiting_.publishing());
  waiting_.ring(bell(q));
  std::uint64_t num_theirs = num_pieces;
  int failure = 0;
  for (; piece; piece = take_piece(&copy, &seen)) {
    --num_theirs;
    const std::uint64_t begin = *piece * piece_bytes, length = std::min(piece_bytes, offer.num_bytes - begin);
    if (!failure) failure = this->copy(q, true, to + begin, offer.address + begin, length);
    seen = copy.pieces.load(std::memory_order_acquire);
  }
  side(q).num_stored += num_theirs;
  const double start = monotonic_seconds();
  while (copy.num_stored.load(std::memory_order_acquire) < side(q).num_stored) {
    if (waiting_.oversubscribed() || monotonic_seconds() > start + kLookSeconds) {
      waiting_.check_others();
      sched_yield();
    }
  }
  if (failure && failure != EFAULT) waiting_.raise_unreachable(q, failure);
  return failure || copy.refused.load(std::memory_order_relaxed) ? Fetch::refused : Fetch::done;
}

}  // namespace dlscale
