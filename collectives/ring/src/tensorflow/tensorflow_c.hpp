// The few functions of TensorFlow's C API that the operations need, declared here and found when the shared
// object is loaded: it is compiled without TensorFlow, and one build serves every release with this API.
//
// Names and meanings are those of tensorflow/c/{ops,kernels,tf_status,tf_tensor}.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dlscale::tf {

struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;

// TF_DataType and TF_Code: enumerations whose numbers TensorFlow also writes into files, so they stay.
enum DataType : int { kFloat = 1, kDouble = 2, kBfloat16 = 14, kHalf = 19 };
enum Code : int { kOk = 0, kInvalidArgument = 3, kInternal = 13 };

using ShapeFunction = void(TF_ShapeInferenceContext*, TF_Status*);
using CreateFunction = void*(TF_OpKernelConstruction*);
using ComputeFunction = void(void*, TF_OpKernelContext*);
using DeleteFunction = void(void*);

#define DLSCALE_TF_FUNCTIONS(X)                                                                             \
  X(TF_Status*, TF_NewStatus, ())                                                                           \
  X(void, TF_DeleteStatus, (TF_Status*))                                                                    \
  X(void, TF_SetStatus, (TF_Status*, int, const char*))                                                     \
  X(int, TF_GetCode, (const TF_Status*))                                                                    \
  X(const char*, TF_Message, (const TF_Status*))                                                            \
  X(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char*))                                      \
  X(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*))                            \
  X(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*))                           \
  X(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*))                          \
  X(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                             \
  X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder*, ShapeFunction*))       \
  X(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                   \
  X(std::int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                           \
  X(TF_ShapeHandle*, TF_NewShapeHandle, ())                                                                 \
  X(void, TF_DeleteShapeHandle, (TF_ShapeHandle*))                                                          \
  X(void, TF_ShapeInferenceContextGetInput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))  \
  X(void, TF_ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*)) \
  X(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext*, TF_Status*))                 \
  X(TF_KernelBuilder*, TF_NewKernelBuilder,                                                                 \
    (const char*, const char*, CreateFunction*, ComputeFunction*, DeleteFunction*))                         \
  X(void, TF_RegisterKernelBuilder, (const char*, TF_KernelBuilder*, TF_Status*))                           \
  X(void, TF_OpKernelConstruction_GetAttrInt64,                                                             \
    (TF_OpKernelConstruction*, const char*, std::int64_t*, TF_Status*))                                     \
  X(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                          \
  X(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))                                    \
  X(int, TF_NumInputs, (TF_OpKernelContext*))                                                               \
  X(void, TF_GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                 \
  X(void, TF_SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))                           \
  X(TF_Tensor*, TF_ForwardInputOrAllocateOutput,                                                            \
    (TF_OpKernelContext*, const int*, int, int, const std::int64_t*, int, int*, TF_Status*))                \
  X(void, TF_DeleteTensor, (TF_Tensor*))                                                                    \
  X(int, TF_TensorType, (const TF_Tensor*))                                                                 \
  X(int, TF_NumDims, (const TF_Tensor*))                                                                    \
  X(std::int64_t, TF_Dim, (const TF_Tensor*, int))                                                          \
  X(std::size_t, TF_TensorByteSize, (const TF_Tensor*))                                                     \
  X(void*, TF_TensorData, (const TF_Tensor*))

#define DLSCALE_DECLARE(result, name, arguments) extern result(*name) arguments;
DLSCALE_TF_FUNCTIONS(DLSCALE_DECLARE)
#undef DLSCALE_DECLARE

// Looks all of them up in the TensorFlow of this process. Returns what is missing, as one line; empty if
// nothing.
std::string find_tensorflow();

}  // namespace dlscale::tf
