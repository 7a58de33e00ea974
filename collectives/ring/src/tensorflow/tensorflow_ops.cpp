// TensorFlow's operations for the exchange of gradients and for steps that sleep, over TensorFlow's C API,
// and the C functions by which Python opens and closes exchanges.
//
//   DlscaleAverage  gradients in, their means over ranks out, in line
//   DlscaleSend     hands over one bucket of gradients; what comes out is still being worked on
//   DlscaleWait     takes what came out for all of a step's buckets; the means, when they are exchanged
//   DlscaleCollect  the same for buckets that were sent in an earlier graph, so it takes nothing
//   DlscaleSleep    hands on what it holds some seconds after a moment, and the moment at which it was to
//   DlscaleArrival  the moment at which what it takes is there
//
// Kernels are synchronous: the callback of asynchronous ones is valid only during the call that starts them.
// Where TensorFlow lets go of a gradient's memory, its mean is written there; else into new memory.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exchange.hpp"
#include "handles.hpp"
#include "tensorflow_c.hpp"

namespace dlscale::tf {

namespace {

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

// Output number `target` and its piece, which is read from input number `source`: at the same address where
// the input's memory is of no more use to others.
Output output(TF_OpKernelContext* context, int source, int target) {
  constexpr int kMaxDimensions = 254;  // TensorFlow's own limit
  std::array<std::int64_t, kMaxDimensions> dimensions;
  int num_dimensions = 0;
  Output found{};
  {
    const Tensor tensor = input(context, source);
    num_dimensions = TF_NumDims(tensor.get());
    for (int i = 0; i < num_dimensions; ++i)
      dimensions[static_cast<std::size_t>(i)] = TF_Dim(tensor.get(), i);
    found.piece.source = static_cast<const std::byte*>(TF_TensorData(tensor.get()));
    found.piece.num_bytes = TF_TensorByteSize(tensor.get());
    found.piece.type = type_of(tensor);
  }  // or this reference would keep TensorFlow from handing the memory on
  const Status status = new_status();
  int forwarded = -1;
  found.tensor.reset(TF_ForwardInputOrAllocateOutput(context, &source, 1, target, dimensions.data(),
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
  for (int i = 0; i < num_inputs; ++i) pieces.push_back(output(context, i, i).piece);
  find_exchange(node.handle)->average(pieces);
}

void send(const Node& node, TF_OpKernelContext* context) {
  const int num_inputs = TF_NumInputs(context);
  std::vector<Piece> pieces;
  std::vector<Exchange::Keeper> keepers;
  for (int i = 0; i < num_inputs; ++i) {
    Output made = output(context, i, i);
    Piece& piece = made.piece;
    if (piece.source != piece.target) {  // TensorFlow takes the input back when this returns
      std::memcpy(piece.target, piece.source, piece.num_bytes);
      piece.source = piece.target;
    }
    pieces.push_back(piece);
    keepers.emplace_back(made.tensor.release(), TensorDeleter());  // or a step that breaks off frees it
  }
  find_exchange(node.handle)
      ->send(static_cast<std::size_t>(node.bucket), static_cast<std::size_t>(node.num_buckets),
             std::move(pieces), std::move(keepers));
}

void collect(const Node& node, TF_OpKernelContext* context) {
  int index = 0;
  const std::shared_ptr<Exchange> exchange = find_exchange(node.handle);
  for (const Exchange::Keeper& kept : exchange->wait()) {
    set_output(context, index++, static_cast<const TF_Tensor*>(kept.get()));
  }
}

double scalar(const void* data) {
  double value = 0;
  std::memcpy(&value, data, sizeof value);
  return value;
}

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Begin, length and what it holds in, end and what it held out, in seconds of the wall clock, as TensorFlow's
// own operation has it. Never longer than the length: somebody may set that clock back meanwhile.
void sleep(TF_OpKernelContext* context) {
  using Seconds = std::chrono::duration<double>;
  const double begin = scalar(TF_TensorData(input(context, 0).get()));
  const double length = scalar(TF_TensorData(input(context, 1).get()));
  const double end = begin + length;
  const double now = wall_clock();
  if (end > now) std::this_thread::sleep_for(Seconds(std::min(end - now, length)));
  std::memcpy(output(context, 0, 0).piece.target, &end, sizeof end);
  const Piece held = output(context, 2, 1).piece;
  if (held.source != held.target) std::memcpy(held.target, held.source, held.num_bytes);
}

void arrival(TF_OpKernelContext* context) {
  const Status status = new_status();
  const Tensor moment(TF_AllocateOutput(context, 0, kDouble, nullptr, 0, sizeof(double), status.get()));
  check(status);
  const double now = wall_clock();
  std::memcpy(TF_TensorData(moment.get()), &now, sizeof now);
}

void fail(TF_OpKernelContext* context, const std::exception& error) {
  const Status status = new_status();
  TF_SetStatus(status.get(), kInternal, error.what());
  TF_OpKernelContext_Failure(context, status.get());
}

template <void (*operation)(const Node&, TF_OpKernelContext*)>
void compute(void* node, TF_OpKernelContext* context) {
  try {
    operation(*static_cast<const Node*>(node), context);
  } catch (const std::exception& error) {
    fail(context, error);
  }
}

template <void (*operation)(TF_OpKernelContext*)>
void compute_alone(void*, TF_OpKernelContext* context) {
  try {
    operation(context);
  } catch (const std::exception& error) {
    fail(context, error);
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

// The moment has the first input's shape, and what is held its own.
void sleep_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* shape = TF_NewShapeHandle();
  for (const auto& [source, target] : {std::pair{0, 0}, std::pair{2, 1}}) {
    TF_ShapeInferenceContextGetInput(context, source, shape, status);
    if (TF_GetCode(status) == kOk) TF_ShapeInferenceContextSetOutput(context, target, shape, status);
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

// Not stateful: a function of TensorFlow would order it among the exchanges, which are, and each would wait
// for all sleeps before it. So it is kept by what it hands on alone: without readers of that it would be
// dropped, control dependencies or not, and it would be folded if it began at a moment that is known before.
void register_sleep() {
  constexpr const char* kName = "DlscaleSleep";
  TF_OpDefinitionBuilder* definition = TF_NewOpDefinitionBuilder(kName);
  TF_OpDefinitionBuilderAddAttr(definition, "T: {float, double, bfloat16, half}");
  TF_OpDefinitionBuilderAddInput(definition, "begin: double");
  TF_OpDefinitionBuilderAddInput(definition, "seconds: double");
  TF_OpDefinitionBuilderAddInput(definition, "held: T");
  TF_OpDefinitionBuilderAddOutput(definition, "end: double");
  TF_OpDefinitionBuilderAddOutput(definition, "handed_on: T");
  TF_OpDefinitionBuilderSetShapeInferenceFunction(definition, &sleep_shapes);
  register_with(TF_NewKernelBuilder(kName, "CPU", nullptr, &compute_alone<&sleep>, nullptr), kName,
                definition);
}

// Not stateful either, for the same reason; what it takes is a variable's value, of which nothing is known
// before.
void register_arrival() {
  constexpr const char* kName = "DlscaleArrival";
  TF_OpDefinitionBuilder* definition = TF_NewOpDefinitionBuilder(kName);
  TF_OpDefinitionBuilderAddAttr(definition, "T: type");
  TF_OpDefinitionBuilderAddInput(definition, "awaited: T");
  TF_OpDefinitionBuilderAddOutput(definition, "moment: double");
  TF_OpDefinitionBuilderSetShapeInferenceFunction(definition, &unknown_shapes);
  register_with(TF_NewKernelBuilder(kName, "CPU", nullptr, &compute_alone<&arrival>, nullptr), kName,
                definition);
}

std::string register_all() {
  std::string missing = find_tensorflow();
  if (!missing.empty()) return missing;
  try {
    register_operation("DlscaleAverage", true, &compute<&average>);
    register_operation("DlscaleSend", true, &compute<&send>);
    register_operation("DlscaleWait", true, &compute<&collect>);
    register_operation("DlscaleCollect", false, &compute<&collect>);
    register_sleep();
    register_arrival();
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
// exchange is closed; pieces of `direct_bytes` and more do not pass through the staging.
DLSCALE_EXPORT std::int64_t dlscale_open(const DlscaleCollective* const* collectives, void* const* stagings,
                                         std::size_t num_teams, std::size_t staging_bytes,
                                         std::size_t direct_bytes, int threads) {
  std::vector<dlscale::Team> teams;
  for (std::size_t i = 0; i < num_teams; ++i) {
    teams.push_back({collectives[i], {static_cast<std::byte*>(stagings[i]), staging_bytes, direct_bytes}});
  }
  return dlscale::open_exchange(std::make_shared<dlscale::Exchange>(std::move(teams), threads != 0));
}

// Returns when nothing is under way: 0, or 1 if the exchange failed.
DLSCALE_EXPORT int dlscale_synchronize(std::int64_t handle) {
  try {
    dlscale::find_exchange(handle)->synchronize();
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

// What went wrong in it, valid until this thread asks again; empty if nothing did, or it is closed.
DLSCALE_EXPORT const char* dlscale_error(std::int64_t handle) {
  static thread_local std::string text;
  try {
    text = dlscale::find_exchange(handle)->error();
  } catch (const std::exception&) {
    text.clear();
  }
  return text.c_str();
}

// Ends the exchange after what is under way; operations that name it fail from now on.
DLSCALE_EXPORT void dlscale_close(std::int64_t handle) { dlscale::close_exchange(handle); }
