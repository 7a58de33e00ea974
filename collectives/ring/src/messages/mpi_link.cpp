#include "mpi_link.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "../mpi_calls.hpp"

namespace dlscale {
namespace {

constexpr int kNumTags = 16 * 1024;                       // every MPI has twice as many
constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // MPI counts are C ints

bool finalized() {
  int yes = 0;
  MPI_Finalized(&yes);
  return yes != 0;
}

void check_with(int peer, int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  throw std::runtime_error("rank " + std::to_string(peer) + " cannot be reached: " + error_text(code, call));
}

}  // namespace

bool MpiLink::send(int peer, const Packet& packet, const std::byte* payload) {
  if (packets_.size() >= kMostPackets) complete_packets();
  if (packets_.size() >= kMostPackets) return false;
  packets_.push_back({MPI_REQUEST_NULL, std::vector<std::byte>(sizeof(packet) + packet.payload_bytes)});
  Sent& sent = packets_.back();
  std::memcpy(sent.memory.data(), &packet, sizeof(packet));
  if (packet.payload_bytes) std::memcpy(sent.memory.data() + sizeof(packet), payload, packet.payload_bytes);
  check_with(peer,
             MPI_Isend(sent.memory.data(), static_cast<int>(sent.memory.size()), MPI_BYTE, peer, first_tag_,
                       comm_, &sent.request),
             "MPI_Isend");
  return true;
}

bool MpiLink::receive(const Handler& handle) {
  if (finalized()) throw std::runtime_error("MPI is finalised, and messages were under way");
  bool any = complete_packets();
  any |= complete_long_messages();
  incoming_.resize(sizeof(Packet) + kPayloadBytes);
  for (;;) {
    int there = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, first_tag_, comm_, &there, &status), "MPI_Iprobe");
    if (!there) return any;
    any = true;
    const int source = status.MPI_SOURCE;
    check_with(source,
               MPI_Recv(incoming_.data(), static_cast<int>(incoming_.size()), MPI_BYTE, source, first_tag_,
                        comm_, MPI_STATUS_IGNORE),
               "MPI_Recv");
    Packet packet;
    std::memcpy(&packet, incoming_.data(), sizeof(packet));
    handle(source, packet, incoming_.data() + sizeof(packet));
  }
}

void MpiLink::lend(int peer, Packet* offer, const std::byte* data, Done done) {
  start(peer, false, *offer, const_cast<std::byte*>(data), std::move(done));
}

Link::Fetch MpiLink::fetch(int peer, const Packet& offer, std::byte* to, Done done) {
  start(peer, true, offer, to, std::move(done));
  return Fetch::under_way;
}

// So many messages from one rank to another are not under way at once that two could have the same tag.
int MpiLink::tag_of(const Packet& offer) const {
  return first_tag_ + 1 + static_cast<int>(offer.id % kNumTags);
}

void MpiLink::start(int peer, bool receives, const Packet& offer, std::byte* data, Done done) {
  long_messages_.push_back({peer, receives, {}, std::move(done)});
  std::vector<MPI_Request>& requests = long_messages_.back().requests;
  for (std::size_t begin = 0; begin < offer.num_bytes; begin += kMostBytes) {
    const int length = static_cast<int>(std::min(kMostBytes, offer.num_bytes - begin));
    requests.push_back(MPI_REQUEST_NULL);
    MPI_Request* request = &requests.back();
    check_with(peer,
               receives ? MPI_Irecv(data + begin, length, MPI_BYTE, peer, tag_of(offer), comm_, request)
                        : MPI_Isend(data + begin, length, MPI_BYTE, peer, tag_of(offer), comm_, request),
               receives ? "MPI_Irecv" : "MPI_Isend");
  }
}

bool MpiLink::complete_packets() {
  const std::size_t before = packets_.size();
  for (auto sent = packets_.begin(); sent != packets_.end();) {
    int done = 0;
    check(MPI_Test(&sent->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    sent = done ? packets_.erase(sent) : std::next(sent);
  }
  return packets_.size() != before;
}

bool MpiLink::complete_long_messages() {
  std::vector<Done> ended;
  for (auto message = long_messages_.begin(); message != long_messages_.end();) {
    int done = 0;
    check_with(message->peer,
               MPI_Testall(static_cast<int>(message->requests.size()), message->requests.data(), &done,
                           MPI_STATUSES_IGNORE),
               "MPI_Testall");
    if (done) ended.push_back(std::move(message->done));
    message = done ? long_messages_.erase(message) : std::next(message);
  }
  for (const Done& done : ended) done();
  return !ended.empty();
}

// As MpiTransport: receives are cancelled, sends are left to MPI, with the memory of packets.
void MpiLink::abort() noexcept {
  if (!finalized()) {
    for (LongMessage& message : long_messages_) {
      for (MPI_Request& request : message.requests) {
        if (request == MPI_REQUEST_NULL) continue;
        if (message.receives) MPI_Cancel(&request);
        MPI_Request_free(&request);
      }
    }
    for (Sent& sent : packets_) {
      if (sent.request != MPI_REQUEST_NULL) MPI_Request_free(&sent.request);
    }
  }
  long_messages_.clear();
  if (!packets_.empty()) new std::list<Sent>(std::move(packets_));
  packets_.clear();
}

}  // namespace dlscale
