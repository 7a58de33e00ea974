// TensorFlow's operations for the exchange of gradients, over TensorFlow's C API, and the C functions by
// which Python opens and closes exchanges.
//
//   DlscaleAverage  gradients in, their means over ranks out, in line
//   DlscaleSend     hands over one bucket of gradients; what comes out is still being worked on
//   DlscaleWait     takes what came out for all of a step's buckets; the means, when they are exchanged
//   DlscaleCollect  the same for buckets that were sent in an earlier graph, so it takes nothing
//
// Kernels are synchronous: the callback of asynchronous ones is valid only during the call that starts them.
// Where TensorFlow lets go of a gradient's memory, its mean is written there; else into new memory.
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "exchange.hpp"
#include "tensorflow_c.hpp"

namespace dlscale::tf {

namespace {

// Exchanges by number: a graph's attributes hold numbers, and a graph may outlive the exchange that it names.
class Registry {
 public:
  std::int64_t open(std::shared_ptr<Exchange> exchange) {
    const std::lock_guard<std::mutex> lock(mutex_);
    exchanges_.emplace(next_handle_, std::move(exchange));
    return next_handle_++;
  }

  // Throws std::runtime_error if it was closed.
  std::shared_ptr<Exchange> find(std::int64_t handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = exchanges_.find(handle);
    if (found == exchanges_.end()) throw std::runtime_error("the exchange of gradients is closed");
    return found->second;
  }

  // Closing one that is closed does nothing. Without the lock, since it waits for threads.
  void close(std::int64_t handle) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto node = exchanges_.extract(handle);
    lock.unlock();
    if (node) node.mapped()->close();
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, std::shared_ptr<Exchange>> exchanges_;
  std::int64_t next_handle_ = 1;
};

// Never destroyed: when a process ends, a thread may still be inside an exchange.
Registry& exchanges() {
  static Registry* const instance = new Registry;
  return *instance;
}

struct StatusDeleter {
  void operator()(TF_Status* status) const { TF_DeleteStatus(status); }
};
struct TensorDeleter {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Status = std::unique_ptr<TF_Status, StatusDeleter>;
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;

Status new_status() { return Status(TF_NewStatus()); }

void check(const Status& status) {
  if (TF_GetCode(status.get()) != kOk) throw std::runtime_error(TF_Message(status.get()));
}

DlscaleType type_of(const Tensor& tensor) {
  switch (TF_TensorType(tensor.get())) {
    case kFloat:
      return kDlscaleFloat32;
    case kDouble:
      return kDlscaleFloat64;
    case kBfloat16:
      return kDlscaleBfloat16;
    case kHalf:
      return kDlscaleFloat16;
    default:
      throw std::runtime_error("gradients must be float32, float64, bfloat16 or float16");
  }
}

// A kernel: the attributes of its node.
struct Node {
  std::int64_t handle, bucket, num_buckets;
};

struct Output {
  Piece piece;
  Tensor tensor;
};

Tensor input(TF_OpKernelContext* context, int index) {
  TF_Tensor* tensor = nullptr;
  const Status status = new_status();
  TF_GetInput(context, index, &tensor, status.get());
  check(status);
  return Tensor(tensor);
}

// Output number `index` and its piece, which is read from that input: at the same address where the input's
// memory is of no more use to others.
Output output(TF_OpKernelContext* context, int index) {
  constexpr int kMaxDimensions = 254;  // TensorFlow's own limit
  std::array<std::int64_t, kMaxDimensions> dimensions;
  int num_dimensions = 0;
  Output found{};
  {
    const Tensor tensor = input(context, index);
    num_dimensions = TF_NumDims(tensor.get());
    for (int i = 0; i < num_dimensions; ++i)
      dimensions[static_cast<std::size_t>(i)] = TF_Dim(tensor.get(), i);
    found.piece.source = static_cast<const std::byte*>(TF_TensorData(tensor.get()));
    found.piece.num_bytes = TF_TensorByteSize(tensor.get());
    found.piece.type = type_of(tensor);
  }  // or this reference would keep TensorFlow from handing the memory on
  const Status status = new_status();
  int forwarded = -1;
  found.tensor.reset(TF_ForwardInputOrAllocateOutput(context, &index, 1, index, dimensions.data(),
                                                     num_dimensions, &forwarded, status.get()));
  check(status);
  found.piece.target = static_cast<std::byte*>(TF_TensorData(found.tensor.get()));
  return found;
}

void set_output(TF_OpKernelContext* context, int index, const TF_Tensor* tensor) {
  const Status status = new_status();
  TF_SetOutput(context, index, tensor, status.get());
  check(status);
}

void average(const Node& node, TF_OpKernelContext* context) {
  const int num_inputs = TF_NumInputs(context);
  std::vector<Piece> pieces;
  pieces.reserve(static_cast<std::size_t>(num_inputs));
  for (int i = 0; i < num_inputs; ++i) pieces.push_back(output(context, i).piece);
  exchanges().find(node.handle)->average(pieces);
}

void send(const Node& node, TF_OpKernelContext* context) {
  const int num_inputs = TF_NumInputs(context);
  std::vector<Piece> pieces;
  std::vector<Exchange::Keeper> keepers;
  for (int i = 0; i < num_inputs; ++i) {
    Output made = output(context, i);
    Piece& piece = made.piece;
    if (piece.source != piece.target) {  // TensorFlow takes the input back when this returns
      std::memcpy(piece.target, piece.source, piece.num_bytes);
      piece.source = piece.target;
    }
    pieces.push_back(piece);
    keepers.emplace_back(made.tensor.release(), TensorDeleter());  // or a step that breaks off frees it
  }
  exchanges()
      .find(node.handle)
      ->send(static_cast<std::size_t>(node.bucket), static_cast<std::size_t>(node.num_buckets),
             std::move(pieces), std::move(keepers));
}

void collect(const Node& node, TF_OpKernelContext* context) {
  int index = 0;
  const std::shared_ptr<Exchange> exchange = exchanges().find(node.handle);
  for (const Exchange::Keeper& kept : exchange->wait()) {
    set_output(context, index++, static_cast<const TF_Tensor*>(kept.get()));
  }
}

template <void (*operation)(const Node&, TF_OpKernelContext*)>
void compute(void* node, TF_OpKernelContext* context) {
  try {
    operation(*static_cast<const Node*>(node), context);
  } catch (const std::exception& error) {
    const Status status = new_status();
    TF_SetStatus(status.get(), kInternal, error.what());
    TF_OpKernelContext_Failure(context, status.get());
  }
}

std::int64_t attribute(TF_OpKernelConstruction* construction, const char* name) {
  std::int64_t value = 0;
  const Status status = new_status();
  TF_OpKernelConstruction_GetAttrInt64(construction, name, &value, status.get());
  if (TF_GetCode(status.get()) != kOk) TF_OpKernelConstruction_Failure(construction, status.get());
  return value;
}

void* create(TF_OpKernelConstruction* construction) {
  return new Node{attribute(construction, "handle"), attribute(construction, "bucket"),
                  attribute(construction, "num_buckets")};
}

void destroy(void* node) { delete static_cast<Node*>(node); }

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto num_inputs = static_cast<int>(TF_ShapeInferenceContextNumInputs(context));
  TF_ShapeHandle* shape = TF_NewShapeHandle();
  for (int i = 0; i < num_inputs; ++i) {
    TF_ShapeInferenceContextGetInput(context, i, shape, status);
    if (TF_GetCode(status) == kOk) TF_ShapeInferenceContextSetOutput(context, i, shape, status);
    if (TF_GetCode(status) != kOk) break;
  }
  TF_DeleteShapeHandle(shape);
}

void unknown_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

void register_with(TF_KernelBuilder* kernel, const char* name, TF_OpDefinitionBuilder* definition) {
  Status status = new_status();
  TF_RegisterOpDefinition(definition, status.get());
  check(status);
  status = new_status();
  TF_RegisterKernelBuilder(name, kernel, status.get());
  check(status);
}

void register_operation(const char* name, bool has_inputs, ComputeFunction* function) {
  TF_OpDefinitionBuilder* definition = TF_NewOpDefinitionBuilder(name);
  TF_OpDefinitionBuilderAddAttr(definition, "T: list({float, double, bfloat16, half}) >= 1");
  TF_OpDefinitionBuilderAddAttr(definition, "handle: int");
  TF_OpDefinitionBuilderAddAttr(definition, "bucket: int = 0");
  TF_OpDefinitionBuilderAddAttr(definition, "num_buckets: int = 1");
  if (has_inputs) TF_OpDefinitionBuilderAddInput(definition, "gradients: T");
  TF_OpDefinitionBuilderAddOutput(definition, "averaged: T");
  TF_OpDefinitionBuilderSetIsStateful(definition, true);  // nobody may merge, fold or drop it
  TF_OpDefinitionBuilderSetShapeInferenceFunction(definition, has_inputs ? &same_shapes : &unknown_shapes);
  register_with(TF_NewKernelBuilder(name, "CPU", &create, function, &destroy), name, definition);
}

std::string register_all() {
  std::string missing = find_tensorflow();
  if (!missing.empty()) return missing;
  try {
    register_operation("DlscaleAverage", true, &compute<&average>);
    register_operation("DlscaleSend", true, &compute<&send>);
    register_operation("DlscaleWait", true, &compute<&collect>);
    register_operation("DlscaleCollect", false, &compute<&collect>);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// TensorFlow notices what is registered while it loads a library. An exception here would end the process.
const std::string kLoadError = register_all();

}  // namespace

}  // namespace dlscale::tf

#define DLSCALE_EXPORT extern "C" __attribute__((visibility("default")))

// Why the operations are not there; empty if they are.
DLSCALE_EXPORT const char* dlscale_load_error() { return dlscale::tf::kLoadError.c_str(); }

// A number for the operations' attribute `handle`: an exchange of `num_teams` teams, each with a thread if
// `threads`. Team t has collectives[t] and stagings[t], of `staging_bytes` each, which must stay until the
// exchange is closed.
DLSCALE_EXPORT std::int64_t dlscale_open(const DlscaleCollective* const* collectives, void* const* stagings,
                                         std::size_t num_teams, std::size_t staging_bytes,
                                         std::size_t /*unused*/, int threads) {
  std::vector<dlscale::Team> teams;
  for (std::size_t i = 0; i < num_teams; ++i) {
    teams.push_back({collectives[i], static_cast<std::byte*>(stagings[i]), staging_bytes});
  }
  return dlscale::tf::exchanges().open(std::make_shared<dlscale::Exchange>(std::move(teams), threads != 0));
}

// Returns when nothing is under way: 0, or 1 if the exchange failed.
DLSCALE_EXPORT int dlscale_synchronize(std::int64_t handle) {
  try {
    dlscale::tf::exchanges().find(handle)->synchronize();
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

// What went wrong in it, valid until this thread asks again; empty if nothing did, or it is closed.
DLSCALE_EXPORT const char* dlscale_error(std::int64_t handle) {
  static thread_local std::string text;
  try {
    text = dlscale::tf::exchanges().find(handle)->error();
  } catch (const std::exception&) {
    text.clear();
  }
  return text.c_str();
}

// Ends the exchange after what is under way; operations that name it fail from now on.
DLSCALE_EXPORT void dlscale_close(std::int64_t handle) { dlscale::tf::exchanges().close(handle); }
