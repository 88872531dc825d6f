// NCCL's functions, loaded from the shared library at the first call.
#include <nccl.h>

#include "base/shared_library.h"

namespace {

template <class F>
F* found(const char* function) {
  static const trireme::SharedLibrary library("libnccl.so." + std::to_string(NCCL_MAJOR), "several ranks on GPUs");
  return library.find<F>(function);
}

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  static auto* const call = found<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  return call(uniqueId);
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  static auto* const call = found<decltype(ncclCommInitRank)>("ncclCommInitRank");
  return call(comm, nranks, commId, rank);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  static auto* const call = found<decltype(ncclCommSplit)>("ncclCommSplit");
  return call(comm, color, key, newcomm, config);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  static auto* const call = found<decltype(ncclCommDestroy)>("ncclCommDestroy");
  return call(comm);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  static auto* const call = found<decltype(ncclCommAbort)>("ncclCommAbort");
  return call(comm);
}
ncclResult_t ncclGetVersion(int* version) {
  static auto* const call = found<decltype(ncclGetVersion)>("ncclGetVersion");
  return call(version);
}
ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  static auto* const call = found<decltype(ncclMemAlloc)>("ncclMemAlloc");
  return call(ptr, size);
}
ncclResult_t ncclMemFree(void* ptr) {
  static auto* const call = found<decltype(ncclMemFree)>("ncclMemFree");
  return call(ptr);
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  static auto* const call = found<decltype(ncclCommRegister)>("ncclCommRegister");
  return call(comm, buff, size, handle);
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  static auto* const call = found<decltype(ncclCommDeregister)>("ncclCommDeregister");
  return call(comm, handle);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  static auto* const call = found<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  return call(comm, asyncError);
}
const char* ncclGetErrorString(ncclResult_t result) {
  static auto* const call = found<decltype(ncclGetErrorString)>("ncclGetErrorString");
  return call(result);
}
const char* ncclGetLastError(ncclComm_t comm) {
  static auto* const call = found<decltype(ncclGetLastError)>("ncclGetLastError");
  return call(comm);
}
ncclResult_t ncclGroupStart() {
  static auto* const call = found<decltype(ncclGroupStart)>("ncclGroupStart");
  return call();
}
ncclResult_t ncclGroupEnd() {
  static auto* const call = found<decltype(ncclGroupEnd)>("ncclGroupEnd");
  return call();
}
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  static auto* const call = found<decltype(ncclAllReduce)>("ncclAllReduce");
  return call(sendbuff, recvbuff, count, datatype, op, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  static auto* const call = found<decltype(ncclReduceScatter)>("ncclReduceScatter");
  return call(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
}
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
                           cudaStream_t stream) {
  static auto* const call = found<decltype(ncclAllGather)>("ncclAllGather");
  return call(sendbuff, recvbuff, sendcount, datatype, comm, stream);
}
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  static auto* const call = found<decltype(ncclBroadcast)>("ncclBroadcast");
  return call(sendbuff, recvbuff, count, datatype, root, comm, stream);
}
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  static auto* const call = found<decltype(ncclReduce)>("ncclReduce");
  return call(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}
ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream) {
  static auto* const call = found<decltype(ncclSend)>("ncclSend");
  return call(sendbuff, count, datatype, peer, comm, stream);
}
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream) {
  static auto* const call = found<decltype(ncclRecv)>("ncclRecv");
  return call(recvbuff, count, datatype, peer, comm, stream);
}
