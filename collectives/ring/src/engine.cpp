#include "engine.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "mpi_calls.hpp"

namespace dlscale {
namespace {

constexpr const char* kFailedBefore = "an earlier operation of this ring communicator failed; end the run";
constexpr std::int64_t kExchangeTag = Messenger::kLeastTag - 1;
constexpr int kFirstMessageTag = 8;  // on `all`, where reports of failures have one of their own

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
      topology_((options.network.check(), usable(comm)), options.piece),
      bootstrap_(topology_.node),
      node_options_(options.node),
      hierarchy_(std::make_unique<Hierarchy>(topology_, options.node, options.network, options.block_bytes,
                                             kernels_)),
      debug_(options.debug),
      generation_(generation()) {
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  const bool several_nodes = topology_.num_nodes > 1;
  if (several_nodes) mpi_link_ = std::make_unique<MpiLink>(topology_.all, kFirstMessageTag);
  Node& node = hierarchy_->node();
  Messenger::Setup setup{topology_.rank,         {},
                         node.message_waiting(), node.bell(),
                         several_nodes,          !several_nodes || level == MPI_THREAD_MULTIPLE};
  for (int r = 0; r < topology_.size; ++r) {
    const bool here = topology_.node_of_rank[static_cast<std::size_t>(r)] == topology_.node_index;
    setup.links.push_back(r == topology_.rank ? nullptr
                          : here              ? static_cast<Link*>(&node.message_link())
                                              : mpi_link_.get());
  }
  setup.look = [this] { hierarchy_->raise_reported(); };
  setup.propagate = [this](const std::exception& error) {
    failed_ = true;
    hierarchy_->propagate(error);
  };
  messenger_ = std::make_shared<Messenger>(std::move(setup));
}

const char* Engine::memory_kind() { return hierarchy_ ? hierarchy_->node().memory_kind() : "closed"; }

std::string Engine::obstacle_to_single_copies() {
  return hierarchy_ ? hierarchy_->node().obstacle_to_single_copies() : "closed";
}

std::size_t Engine::num_cores() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return hierarchy_ ? hierarchy_->node().crew().num_cores() : 1;
}

void Engine::set_num_cores(std::size_t num_cores) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto share = static_cast<std::size_t>(topology_.num_own_cpus);
  if (hierarchy_) hierarchy_->node().crew().set_num_cores(num_cores ? num_cores : share);
}

std::string Engine::obstacle_to_huge_pages() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return obstacle_to_huge_pages_;
}

std::vector<OnlineTuner::Choice> Engine::choices() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return hierarchy_ ? hierarchy_->node().choices() : std::vector<OnlineTuner::Choice>();
}

void Engine::require_own_process() const {
  if (generation_ == generation()) return;
  throw std::runtime_error(
      "this ring communicator belongs to the parent process; start helper processes by spawn or "
      "forkserver, "
      "or before the ring is joined");
}

template <typename Operation>
void Engine::operate(Operation operation) {
  require_own_process();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!hierarchy_) throw std::runtime_error("this ring communicator is closed");
  if (failed_) throw std::runtime_error(kFailedBefore);
  try {
    operation();
  } catch (const std::invalid_argument&) {
    throw;  // refused before anything was sent, by all ranks
  } catch (const std::exception& error) {
    if (!failed_.exchange(true)) hierarchy_->propagate(error);  // of messages it is told already
    throw;
  }
}

void Engine::allreduce(std::byte* data, std::size_t count, Type type, Op op) {
  operate([&] {
    if (op == Op::average && is_integer(type)) {
      throw std::invalid_argument("an average of integers is no integer; give floats, or sum");
    }
    compare("allreduce", type, op, count, 0);
    if (count == 0) return;
    if (const SharedArray* array = shared_array_of(data, count * width(type))) {
      hierarchy_->allreduce(*array, data, count, type, op);
    } else {
      hierarchy_->allreduce(data, count, type, op);
    }
  });
}

void Engine::allreduce_rounded(float* data, std::size_t count, Op op, Residual* residual) {
  operate([&] {
    if (op != Op::sum && op != Op::average) {
      throw std::invalid_argument("only a sum or an average can travel as bfloat16");
    }
    compare("rounded allreduce", Type::float32, op, count, 0);
    if (count == 0) return;
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    hierarchy_->allreduce_rounded(shared_array_of(bytes, count * sizeof(float)), data, count, op, residual);
  });
}

void Engine::reduce_scatter(const std::byte* input, std::byte* output, std::size_t count, Type type, Op op) {
  operate([&] {
    if (op == Op::average && is_integer(type)) {
      throw std::invalid_argument("an average of integers is no integer; give floats, or sum");
    }
    compare("reduce_scatter", type, op, count, 0);
    if (count) hierarchy_->reduce_scatter(input, output, count, type, op);
  });
}

void Engine::allgather(const std::byte* input, std::byte* output, std::size_t count, Type type) {
  operate([&] {
    compare("allgather", type, Op::sum, count, 0);
    if (count) hierarchy_->allgather(input, output, count, type);
  });
}

void Engine::broadcast(std::byte* data, std::size_t num_bytes, int root) {
  operate([&] {
    check_root(root);
    compare("broadcast", Type::float32, Op::sum, num_bytes, root);
    if (num_bytes) hierarchy_->broadcast(data, num_bytes, root);
  });
}

void Engine::check_root(int root) const {
  if (root >= 0 && root < topology_.size) return;
  throw std::invalid_argument("root is " + std::to_string(root) + "; give 0 .. " +
                              std::to_string(topology_.size - 1));
}

void Engine::reduce(std::byte* data, std::size_t count, Type type, Op op, int root) {
  check_root(root);
  allreduce(data, count, type, op);
}

// Nearest ranks behind this one first, so that not all send to the same one.
void Engine::exchange(const char* name, const std::vector<Part>& sends, const std::vector<Part>& receives,
                      int root) {
  operate([&] {
    check_root(root);
    compare(name, Type::float32, Op::sum, 0, root);
    const std::shared_ptr<Messenger> messenger = this->messenger();
    std::vector<MessageHandle> messages;
    for (const Part& part : receives) {
      messages.push_back(messenger->receive(part.rank, kExchangeTag, part.data, part.num_bytes, false));
    }
    std::vector<Part> ordered = sends;
    const auto distance = [&](const Part& part) {
      return (part.rank - topology_.rank + topology_.size) % topology_.size;
    };
    std::stable_sort(ordered.begin(), ordered.end(),
                     [&](const Part& a, const Part& b) { return distance(a) < distance(b); });
    for (const Part& part : ordered) {
      messages.push_back(messenger->send(part.rank, kExchangeTag, part.data, part.num_bytes, false));
    }
    for (const MessageHandle& message : messages) messenger->wait(*message);
  });
}

void Engine::barrier() {
  operate([&] {
    compare("barrier", Type::float32, Op::sum, 0, 0);
    hierarchy_->barrier();
  });
}

std::shared_ptr<Messenger> Engine::messenger() {
  require_own_process();
  const std::lock_guard<std::mutex> lock(messenger_mutex_);
  if (!messenger_) throw std::runtime_error("this ring communicator is closed");
  if (failed_ && !messenger_->failed()) throw std::runtime_error(kFailedBefore);
  return messenger_;
}

MessageHandle Engine::send(const std::byte* data, std::size_t num_bytes, int peer, std::int64_t tag,
                           bool open) {
  return messenger()->send(peer, tag, data, num_bytes, open);
}

MessageHandle Engine::receive(std::byte* data, std::size_t num_bytes, int peer, std::int64_t tag, bool open) {
  return messenger()->receive(peer, tag, data, num_bytes, open);
}

bool Engine::wait(const Message& message, double seconds) {
  return message.done || messenger()->wait(message, seconds);
}

bool Engine::is_under_way(const Message& message) {
  if (message.done || generation_ != generation()) return false;
  const std::lock_guard<std::mutex> lock(messenger_mutex_);
  return messenger_ && !messenger_->failed();
}

SharedBuffer Engine::share(std::size_t num_bytes) {
  SharedBuffer buffer;
  operate([&] {
    compare("empty", Type::float32, Op::sum, num_bytes, 0);
    hierarchy_->barrier();  // MPI, which comes next, would wait for ever for a rank that is dead or late
    std::string complaint;
    try {
      buffer = std::make_shared<SharedArray>(bootstrap_, num_bytes, node_options_.memory, ++num_shared_);
      obstacle_to_huge_pages_ = buffer->obstacle_to_huge_pages();
    } catch (const std::runtime_error& error) {
      complaint = error.what();
    }
    int good = complaint.empty();
    check(MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, topology_.all), "MPI_Allreduce");
    // Nothing is under way: the engine may go on without this array.
    if (!complaint.empty()) throw NoMemory(complaint);
    if (!good) throw NoMemory("the ranks of another node could not share so much memory");
    arrays_.erase(std::remove_if(arrays_.begin(), arrays_.end(), [](const auto& a) { return a.expired(); }),
                  arrays_.end());
    arrays_.push_back(buffer);
  });
  return buffer;
}

std::size_t Engine::name_of(const std::byte* data, std::size_t num_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const SharedArray* array = shared_array_of(data, num_bytes);
  return array ? array->name_of(data) : 0;
}

bool Engine::is_shared(std::size_t name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(arrays_.begin(), arrays_.end(), [&](const std::weak_ptr<SharedArray>& array) {
    const SharedBuffer buffer = array.lock();
    return buffer && buffer->name_of(buffer->own()) / kNamesPerArray == name / kNamesPerArray;
  });
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
  static constexpr std::array<const char*, kNumTypes> kTypes = {"float32", "float64", "bfloat16",
                                                                "float16", "int32",   "int64"};
  static constexpr std::array<const char*, 4> kOps = {"sum", "average", "min", "max"};
  const auto describe = [&](const Call& call) {
    return std::string(call.name) + " of " + std::to_string(call.count) + " " +
           kTypes[static_cast<std::size_t>(call.type)] + ", " + kOps[static_cast<std::size_t>(call.op)] +
           ", root " + std::to_string(call.root);
  };
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (std::memcmp(&all[r], &all[0], sizeof(Call)) == 0) continue;
    throw std::invalid_argument(
        "ranks disagree: rank 0 called " + describe(all[0]) + "; rank " + std::to_string(r) + " called " +
        describe(all[r]) + "; call the same operation with buffers equal in dtype and length on all ranks");
  }
}

Engine::~Engine() {
  // In a forked child nothing here is its own: neither the memory nor what MPI has under way.
  if (generation_ == generation()) {
    close_messages();
    return;
  }
  new std::shared_ptr<Messenger>(std::move(messenger_));
  (void)mpi_link_.release();
  (void)hierarchy_.release();
}

void Engine::close_messages() noexcept {
  std::shared_ptr<Messenger> closed;
  {
    const std::lock_guard<std::mutex> lock(messenger_mutex_);
    closed = std::exchange(messenger_, nullptr);
  }
  if (closed) closed->close();
}

void Engine::close() {
  if (generation_ != generation()) return;
  close_messages();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!hierarchy_) return;
  mpi_link_.reset();
  hierarchy_.reset();
  int finalized = 0;
  MPI_Finalized(&finalized);
  // After a failure the other ranks may never come here, and after MPI_Finalize there is nothing to free.
  if (!finalized && !failed_) topology_.free();
}

}  // namespace dlscale
