#include "engine.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "mpi_calls.hpp"

namespace dlscale {
namespace {

constexpr const char* kFailedBefore = "an earlier operation of this ring communicator failed; end the run";

std::atomic<unsigned> process_generation{0};

// A forked child shares nothing with the ranks but looks as if it did.
unsigned generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++process_generation; });
  (void)registered;
  return process_generation.load(std::memory_order_relaxed);
}

MPI_Comm usable(MPI_Comm comm) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  if (!initialized) throw std::runtime_error("MPI is not initialised; import mpi4py.MPI first");
  MPI_Finalized(&finalized);
  if (finalized) throw std::runtime_error("MPI is finalised already");
  if (comm == MPI_COMM_NULL) throw std::runtime_error("the communicator is MPI_COMM_NULL");
  return comm;
}

}  // namespace

Engine::Engine(MPI_Comm comm, const EngineOptions& options)
    : kernels_(kernels()),
      topology_((options.network.check(), usable(comm)), options.ranks_per_node),
      huge_pages_(options.node.huge_pages),
      hierarchy_(std::make_unique<Hierarchy>(topology_, options.node, options.network, options.block_bytes,
                                             kernels_)),
      debug_(options.debug),
      generation_(generation()) {}

std::string Engine::obstacle_to_single_copies() {
  return hierarchy_ ? hierarchy_->node().obstacle_to_single_copies() : "closed";
}

std::string Engine::obstacle_to_huge_pages() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return obstacle_to_huge_pages_;
}

std::vector<OnlineTuner::Choice> Engine::choices() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return hierarchy_ ? hierarchy_->node().choices() : std::vector<OnlineTuner::Choice>();
}

template <typename Work>
void Engine::guarded(Work work) {
  if (generation_ != generation()) {
    throw std::runtime_error(
        "this ring communicator belongs to the parent process; start helper processes by spawn or "
        "forkserver, or before the ring is joined");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!hierarchy_) throw std::runtime_error("this ring communicator is closed");
  if (failed_) throw std::runtime_error(kFailedBefore);
  try {
    work();
  } catch (const std::invalid_argument&) {
    throw;  // refused before anything was sent, by all ranks
  } catch (const std::exception& error) {
    failed_ = true;
    hierarchy_->propagate(error);
    throw;
  }
}

template <typename Work>
void Engine::operate(Operation operation, Type type, Op op, std::size_t count, std::size_t num_bytes,
                     int root, Work work) {
  guarded([&] {
    if (op == Op::average && is_integer(type)) {
      throw std::invalid_argument("an average of integers is no integer; give floats, or sum");
    }
    compare(name_of(operation), type, op, count, root);
    if (num_bytes || operation == Operation::barrier) work();
    Counter& counter = counters_[static_cast<std::size_t>(operation)];
    counter.num_calls.fetch_add(1, std::memory_order_relaxed);
    counter.num_bytes.fetch_add(num_bytes, std::memory_order_relaxed);
  });
}

Count Engine::count(Operation operation) const {
  const Counter& counter = counters_[static_cast<std::size_t>(operation)];
  return {counter.num_calls.load(std::memory_order_relaxed),
          counter.num_bytes.load(std::memory_order_relaxed)};
}

void Engine::allreduce(std::byte* data, std::size_t count, Type type, Op op) {
  operate(Operation::allreduce, type, op, count, count * width(type), 0, [&] {
    if (const SharedArray* array = shared_array_of(data, count * width(type))) {
      hierarchy_->allreduce(*array, data, count, type, op);
    } else {
      hierarchy_->allreduce(data, count, type, op);
    }
  });
}

void Engine::reduce_scatter(const std::byte* input, std::byte* output, std::size_t count, Type type, Op op) {
  operate(Operation::reduce_scatter, type, op, count, bytes_of_all(count, type), 0,
          [&] { hierarchy_->reduce_scatter(input, output, count, type, op); });
}

void Engine::allgather(const std::byte* input, std::byte* output, std::size_t count, Type type) {
  operate(Operation::allgather, type, Op::sum, count, bytes_of_all(count, type), 0,
          [&] { hierarchy_->allgather(input, output, count, type); });
}

void Engine::broadcast(std::byte* data, std::size_t num_bytes, int root) {
  if (root < 0 || root >= topology_.size) {
    throw std::invalid_argument("root is " + std::to_string(root) + "; give 0 .. " +
                                std::to_string(topology_.size - 1));
  }
  operate(Operation::broadcast, Type::float32, Op::sum, num_bytes, num_bytes, root,
          [&] { hierarchy_->broadcast(data, num_bytes, root); });
}

void Engine::barrier() {
  operate(Operation::barrier, Type::float32, Op::sum, 0, 0, 0, [&] { hierarchy_->barrier(); });
}

// The ranks of a node find the memory over the ring itself, and not over MPI, which would wait for ever for a
// rank that is dead or late.
SharedBuffer Engine::share(std::size_t num_bytes) {
  SharedBuffer buffer;
  guarded([&] {
    compare("empty", Type::float32, Op::sum, num_bytes, 0);
    std::string complaint;
    try {
      buffer = std::make_shared<SharedArray>(hierarchy_->node(), num_bytes, huge_pages_, ++num_shared_);
      obstacle_to_huge_pages_ = buffer->obstacle_to_huge_pages();
    } catch (const Refusal& error) {
      complaint = error.what();
    }
    std::int32_t good = complaint.empty();
    hierarchy_->allreduce(reinterpret_cast<std::byte*>(&good), 1, Type::int32, Op::min);
    // Nothing is under way: the engine may go on without this array.
    if (!complaint.empty()) throw NoMemory(complaint);
    if (!good) throw NoMemory("the ranks of another node could not share so much memory");
    arrays_.erase(std::remove_if(arrays_.begin(), arrays_.end(), [](const auto& a) { return a.expired(); }),
                  arrays_.end());
    arrays_.push_back(buffer);
  });
  return buffer;
}

const SharedArray* Engine::shared_array_of(const std::byte* data, std::size_t num_bytes) const {
  for (const std::weak_ptr<SharedArray>& array : arrays_) {
    const SharedBuffer buffer = array.lock();
    if (buffer && buffer->holds(data, num_bytes)) return buffer.get();
  }
  return nullptr;
}

// Differing arguments would hang or mix up values; with `debug` they are an error on all ranks instead.
void Engine::compare(const char* name, Type type, Op op, std::size_t count, int root) {
  if (!debug_) return;
  struct Call {
    char name[24];
    unsigned long long count;
    int type, op, root, padding;
  };
  Call mine{{}, count, static_cast<int>(type), static_cast<int>(op), root, 0};
  std::strncpy(mine.name, name, sizeof(mine.name) - 1);
  std::vector<Call> all(static_cast<std::size_t>(topology_.size));
  static_assert(sizeof(Call) % sizeof(std::int64_t) == 0, "it travels as integers");
  hierarchy_->allgather(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(all.data()),
                        sizeof(Call) / sizeof(std::int64_t), Type::int64);
  const auto describe = [&](const Call& call) {
    return std::string(call.name) + " of " + std::to_string(call.count) + " " +
           name_of(static_cast<Type>(call.type)) + ", " + name_of(static_cast<Op>(call.op)) + ", root " +
           std::to_string(call.root);
  };
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (std::memcmp(&all[r], &all[0], sizeof(Call)) == 0) continue;
    throw std::invalid_argument(
        "ranks disagree: rank 0 called " + describe(all[0]) + "; rank " + std::to_string(r) + " called " +
        describe(all[r]) + "; call the same operation with buffers equal in dtype and length on all ranks");
  }
}

// In a forked child nothing here is its own: neither the memory nor what MPI has under way.
Engine::~Engine() {
  if (generation_ != generation()) (void)hierarchy_.release();
}

void Engine::close() {
  if (generation_ != generation()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!hierarchy_) return;
  hierarchy_.reset();
  int finalized = 0;
  MPI_Finalized(&finalized);
  // After a failure the other ranks may never come here, and after MPI_Finalize there is nothing to free.
  if (!finalized && !failed_) topology_.free();
}

}  // namespace dlscale
