// The only file here that knows the engine.
#include <stdexcept>

#include "../src/engine.hpp"
#include "operation.hpp"

namespace bench {
namespace {

// While the engine finds out which manner of moving large messages is fastest here, some calls are slow.
constexpr int kTrialCalls = 30;

dlscale::EngineOptions options_for(MPI_Comm comm) {
  int num_ranks = 1;
  MPI_Comm_size(comm, &num_ranks);
  dlscale::EngineOptions options;
  options.network = dlscale::network::default_tuning(static_cast<std::size_t>(num_ranks));
  return options;
}

class Ring : public Operation {
 public:
  // `shared`: on memory of the engine's own, without staging. `waits` false: the same loads and stores, but
  // nobody waits for anybody; results are wrong.
  Ring(MPI_Comm comm, bool shared, bool waits)
      : engine_(comm, options_for(comm)), shared_(shared), waits_(waits) {
    engine_.set_free_running(!waits);
  }
  ~Ring() override {
    memory_.reset();
    engine_.close();
  }

  float* memory(std::size_t count) override {
    if (!shared_) return nullptr;
    memory_ = engine_.share(count * sizeof(float));
    return reinterpret_cast<float*>(memory_->own());
  }

  void run(float* data, std::size_t count) override {
    engine_.allreduce(reinterpret_cast<std::byte*>(data), count, dlscale::Type::float32, dlscale::Op::sum);
  }

  bool sums() const override { return waits_; }
  int trial_calls() const override { return kTrialCalls; }

 private:
  dlscale::Engine engine_;
  dlscale::SharedBuffer memory_;
  bool shared_;
  bool waits_;
};

}  // namespace

std::unique_ptr<Operation> make_ring_operation(const std::string& name, MPI_Comm comm) {
  if (name == "ring") return std::make_unique<Ring>(comm, false, true);
  if (name == "ring-shared") return std::make_unique<Ring>(comm, true, true);
  if (name == "ring-unsynchronised") return std::make_unique<Ring>(comm, false, false);
  return nullptr;
}

}  // namespace bench
