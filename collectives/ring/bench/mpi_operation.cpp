// The peers' own allreduce, and the memory stream that bounds everybody's.
#include <algorithm>
#include <stdexcept>

#include "operation.hpp"

#ifdef DLSCALE_TARGET_CLONES
#define DLSCALE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DLSCALE_CLONES
#endif

namespace bench {
namespace {

constexpr std::size_t kMaxCount = std::size_t{1} << 30;  // MPI counts are ints

DLSCALE_CLONES void add_constant(float* data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) data[i] += 1.0F;
}

class Mpi : public Operation {
 public:
  explicit Mpi(MPI_Comm comm) : comm_(comm) {}

  void run(float* data, std::size_t count) override {
    for (std::size_t begin = 0; begin < count; begin += kMaxCount) {
      const int part = static_cast<int>(count - begin < kMaxCount ? count - begin : kMaxCount);
      MPI_Allreduce(MPI_IN_PLACE, data + begin, part, MPI_FLOAT, MPI_SUM, comm_);
    }
  }

 private:
  MPI_Comm comm_;
};

// As Intel's benchmarks do it: out of place, on memory that MPI gives.
class MpiCopy : public Operation {
 public:
  explicit MpiCopy(MPI_Comm comm) : comm_(comm) {}
  ~MpiCopy() override {
    for (float* memory : {data_, result_}) {
      if (memory != nullptr) MPI_Free_mem(memory);
    }
  }

  float* memory(std::size_t count) override {
    data_ = allocated(count);
    result_ = allocated(count);
    return data_;
  }

  void run(float* data, std::size_t count) override {
    if (count > kMaxCount) throw std::runtime_error("mpi-copy is for at most 4 GiB");
    MPI_Allreduce(data, result_, static_cast<int>(count), MPI_FLOAT, MPI_SUM, comm_);
  }

  bool sums() const override { return false; }

 private:
  static float* allocated(std::size_t count) {
    void* place = nullptr;
    MPI_Alloc_mem(static_cast<MPI_Aint>(count * sizeof(float)), MPI_INFO_NULL, &place);
    std::fill_n(static_cast<float*>(place), count, 1.0F);
    return static_cast<float*>(place);
  }

  MPI_Comm comm_;
  float* data_ = nullptr;
  float* result_ = nullptr;
};

class Stream : public Operation {
 public:
  void run(float* data, std::size_t count) override { add_constant(data, count); }
  bool sums() const override { return false; }
};

}  // namespace

std::unique_ptr<Operation> make_operation(const std::string& name, MPI_Comm comm) {
  if (name == "mpi") return std::make_unique<Mpi>(comm);
  if (name == "mpi-copy") return std::make_unique<MpiCopy>(comm);
  if (name == "stream") return std::make_unique<Stream>();
  if (auto operation = make_ring_operation(name, comm)) return operation;
  throw std::invalid_argument("no operation " + name);
}

}  // namespace bench
