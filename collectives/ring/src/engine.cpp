#include "engine.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "crowding.hpp"

namespace dlscale {
namespace {

constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 30;  // MPI counts are ints
constexpr int kTag = 1;  // one is enough: MPI keeps the order of messages from a rank to another

}  // namespace

Engine::Engine(MPI_Comm comm, std::size_t segment_bytes) : segment_bytes_(segment_bytes) {
  if (segment_bytes == 0 || segment_bytes > kMaxMessageBytes) {
    throw std::invalid_argument("segment_bytes is " + std::to_string(segment_bytes) + "; give 1 .. " +
                                std::to_string(kMaxMessageBytes));
  }
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (!initialized) throw std::runtime_error("MPI is not initialised; import mpi4py.MPI first");
  if (comm == MPI_COMM_NULL) throw std::runtime_error("the communicator is MPI_COMM_NULL");
  check(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  crowded_ = ranks_outnumber_cpus(comm_);
}

template <typename Operation>
void Engine::operate(Operation operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (comm_ == MPI_COMM_NULL) throw std::runtime_error("this ring communicator is closed");
  if (failed_) throw std::runtime_error("an earlier operation of this ring communicator failed; end the run");
  try {
    operation();
  } catch (const std::runtime_error&) {
    failed_ = true;
    throw;
  }
}

void Engine::allreduce(std::byte* data, std::size_t count, const Element& element) {
  operate([&] {
    if (size_ == 1 || count == 0) return;
    const std::size_t max_segment = std::max<std::size_t>(segment_bytes_ / element.width, 1);
    run(Ring(count, static_cast<std::size_t>(rank_), static_cast<std::size_t>(size_), max_segment), data,
        element);
  });
}

// Both streams of messages, to the next rank and from the previous one, advance independently within a
// window of requests, each as far as the other lets it (see `Ring`). Nothing here ever waits for a send
// alone or for a receive alone, so no circle of waiting ranks can form.
void Engine::run(const Ring& ring, std::byte* data, const Element& element) {
  const int next = (rank_ + 1) % size_;
  const int previous = (rank_ + size_ - 1) % size_;
  const std::size_t num_messages = ring.num_messages();
  auto bytes = [&](Range range) { return range.size() * element.width; };
  auto place = [&](Range range) { return data + range.begin * element.width; };

  // What the first lap receives waits in scratch to be added.
  const std::size_t slot_lines = (bytes(ring.longest_segment()) + sizeof(Line) - 1) / sizeof(Line);
  if (scratch_.size() < Requests::kWindow * slot_lines) scratch_.resize(Requests::kWindow * slot_lines);
  auto slot = [&](std::size_t i) { return scratch_[i % Requests::kWindow * slot_lines].bytes; };

  Requests receives, sends;
  std::size_t num_posted = 0, num_received = 0;
  std::size_t num_started = 0, num_sent = 0;
  Patience patience(crowded_);
  while (num_received < num_messages || num_sent < num_messages) {
    for (; num_posted < std::min(num_messages, num_received + Requests::kWindow); ++num_posted) {
      if (num_sent < ring.num_sent_before_receiving(num_posted)) break;
      const Range range = ring.received(num_posted);
      std::byte* target = ring.adds(num_posted) ? slot(num_posted) : place(range);
      check(MPI_Irecv(target, static_cast<int>(bytes(range)), MPI_BYTE, previous, kTag, comm_,
                      receives[num_posted]),
            "MPI_Irecv");
    }
    for (; num_started < std::min(num_messages, num_sent + Requests::kWindow); ++num_started) {
      if (num_received < ring.num_received_before_sending(num_started)) break;
      const Range range = ring.sent(num_started);
      check(MPI_Isend(place(range), static_cast<int>(bytes(range)), MPI_BYTE, next, kTag, comm_,
                      sends[num_started]),
            "MPI_Isend");
    }

    bool moved = false;
    if (num_received < num_posted) {
      const Range range = ring.received(num_received);
      if (arrived(receives[num_received], bytes(range))) {
        if (ring.adds(num_received)) element.add(place(range), slot(num_received), range.size());
        ++num_received;
        moved = true;
      }
    }
    if (num_sent < num_started) {
      int done = 0;
      check(MPI_Test(sends[num_sent], &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) {
        ++num_sent;
        moved = true;
      }
    }
    if (moved) {
      patience.found_something();
    } else {
      patience.found_nothing();
    }
  }
}

// A shorter message than expected is no error to MPI, but its sum would be wrong.
bool Engine::arrived(MPI_Request* request, std::size_t num_bytes) const {
  int done = 0;
  MPI_Status status;
  check(MPI_Test(request, &done, &status), "MPI_Test");
  if (!done) return false;
  int num_received = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &num_received), "MPI_Get_count");
  if (static_cast<std::size_t>(num_received) != num_bytes) {
    throw std::runtime_error("rank " + std::to_string(status.MPI_SOURCE) + " sent " +
                             std::to_string(num_received) + " bytes where " + std::to_string(num_bytes) +
                             " were expected; give buffers equal in dtype and length on all ranks");
  }
  return true;
}

void Engine::broadcast(std::byte* data, std::size_t num_bytes, int root) {
  operate([&] {
    if (root < 0 || root >= size_) {
      throw std::invalid_argument("root is " + std::to_string(root) + "; give 0 .. " +
                                  std::to_string(size_ - 1));
    }
    for (std::size_t begin = 0; begin < num_bytes; begin += kMaxMessageBytes) {
      const std::size_t length = std::min(kMaxMessageBytes, num_bytes - begin);
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Ibcast(data + begin, static_cast<int>(length), MPI_BYTE, root, comm_, &request),
            "MPI_Ibcast");
      wait_for(&request);
    }
  });
}

void Engine::barrier() {
  operate([&] {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
    wait_for(&request);
  });
}

void Engine::wait_for(MPI_Request* request) const {
  Patience patience(crowded_);
  for (int done = 0;;) {
    check(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) return;
    patience.found_nothing();
  }
}

void Engine::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  int finalized = 0;
  MPI_Finalized(&finalized);
  // After a failure the other ranks may never come here, and after MPI_Finalize there is nothing to free.
  if (comm_ != MPI_COMM_NULL && !finalized && !failed_) check(MPI_Comm_free(&comm_), "MPI_Comm_free");
  comm_ = MPI_COMM_NULL;
}

}  // namespace dlscale
