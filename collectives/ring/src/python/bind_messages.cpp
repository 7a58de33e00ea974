#include "bind_messages.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host_memory.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dlscale {
namespace {

// A message and the array that it comes from or goes to.
class MessageUnderWay {
 public:
  MessageUnderWay(Engine& engine, std::unique_ptr<HostMemory> memory, MessageHandle message)
      : engine_(engine), memory_(std::move(memory)), message_(std::move(message)) {}
  // Others may still read or write the array of a message that nobody waited for: it stays.
  ~MessageUnderWay() {
    if (engine_.is_under_way(*message_)) (void)memory_.release();
  }
  MessageUnderWay(const MessageUnderWay&) = delete;
  MessageUnderWay& operator=(const MessageUnderWay&) = delete;

  bool wait(double seconds) const { return engine_.wait(*message_, seconds); }
  bool is_done() const { return message_->done; }
  bool is_under_way() const { return engine_.is_under_way(*message_); }
  // Of a receive, once it is done.
  int source() const { return message_->peer; }

 private:
  Engine& engine_;
  std::unique_ptr<HostMemory> memory_;
  MessageHandle message_;
};

void check_elements(const HostMemory& memory) {
  if (memory.holds_objects()) throw nb::type_error("the array holds Python objects, which cannot travel");
}

std::unique_ptr<HostMemory> memory_of(nb::handle array, bool writable) {
  auto memory = std::make_unique<HostMemory>(array, writable);
  check_elements(*memory);
  return memory;
}

void check_ranks(const Engine& engine, int peer, std::int64_t tag, bool waits = false) {
  const int size = engine.topology().size;
  if (waits && peer == engine.topology().rank) throw nb::value_error("a rank would wait for itself");
  if (peer >= size || peer < 0) {
    throw nb::value_error(
        ("rank is " + std::to_string(peer) + "; give 0 .. " + std::to_string(size - 1)).c_str());
  }
  if (tag < Messenger::kLeastTag) {
    throw nb::value_error(("tag is " + std::to_string(tag) + "; give 0 or more").c_str());
  }
}

void send(Engine& engine, nb::handle array, int to, std::int64_t tag) {
  check_ranks(engine, to, tag, true);
  const HostMemory memory(array, false);
  check_elements(memory);
  const nb::gil_scoped_release without_lock;
  engine.wait(*engine.send(memory.bytes(), memory.num_bytes(), to, tag, false), 0);
}

// Without a source it is any rank's.
int source_of(const Engine& engine, std::optional<int> source, std::int64_t tag, bool waits) {
  check_ranks(engine, source.value_or(0), tag, waits && source);
  return source.value_or(Messenger::kAnySource);
}

int receive(Engine& engine, nb::handle array, std::optional<int> source, std::int64_t tag) {
  const int peer = source_of(engine, source, tag, true);
  const HostMemory memory(array, true);
  check_elements(memory);
  const nb::gil_scoped_release without_lock;
  const MessageHandle message = engine.receive(memory.bytes(), memory.num_bytes(), peer, tag, false);
  engine.wait(*message, 0);
  return message->peer;
}

std::unique_ptr<MessageUnderWay> begin_send(Engine& engine, nb::handle array, int to, std::int64_t tag) {
  check_ranks(engine, to, tag);
  auto memory = memory_of(array, false);
  MessageHandle message;
  {
    const nb::gil_scoped_release without_lock;
    message = engine.send(memory->bytes(), memory->num_bytes(), to, tag, true);
  }
  return std::make_unique<MessageUnderWay>(engine, std::move(memory), std::move(message));
}

std::unique_ptr<MessageUnderWay> begin_receive(Engine& engine, nb::handle array, std::optional<int> source,
                                               std::int64_t tag) {
  const int peer = source_of(engine, source, tag, false);
  auto memory = memory_of(array, true);
  MessageHandle message;
  {
    const nb::gil_scoped_release without_lock;
    message = engine.receive(memory->bytes(), memory->num_bytes(), peer, tag, true);
  }
  return std::make_unique<MessageUnderWay>(engine, std::move(memory), std::move(message));
}

// Ranks and their arrays, which `memories` holds.
std::vector<Part> parts_of(const Engine& engine, const nb::list& pairs, bool writable,
                           std::vector<std::unique_ptr<HostMemory>>* memories) {
  std::vector<Part> parts;
  for (const nb::handle pair : pairs) {
    const int rank = nb::cast<int>(pair[0]);
    check_ranks(engine, rank, Messenger::kLeastTag);
    memories->push_back(memory_of(pair[1], writable));
    parts.push_back({rank, memories->back()->bytes(), memories->back()->num_bytes()});
  }
  return parts;
}

void exchange(Engine& engine, const char* name, const nb::list& sends, const nb::list& receives, int root) {
  std::vector<std::unique_ptr<HostMemory>> memories;
  const std::vector<Part> going = parts_of(engine, sends, false, &memories);
  const std::vector<Part> coming = parts_of(engine, receives, true, &memories);
  const nb::gil_scoped_release without_lock;
  engine.exchange(name, going, coming, root);
}

}  // namespace

void bind_messages(nb::module_& m, nb::class_<Engine>& engine) {
  nb::class_<MessageUnderWay>(m, "Message")
      .def("wait", &MessageUnderWay::wait, "seconds"_a = 0.0, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("done", &MessageUnderWay::is_done)
      .def_prop_ro("under_way", &MessageUnderWay::is_under_way)
      .def_prop_ro("source", &MessageUnderWay::source);
  engine.def("exchange", &exchange, "name"_a, "sends"_a, "receives"_a, "root"_a)
      .def("send", &send, "buffer"_a, "to"_a, "tag"_a)
      .def("recv", &receive, "buffer"_a, "source"_a.none(), "tag"_a)
      .def("isend", &begin_send, "buffer"_a, "to"_a, "tag"_a, nb::keep_alive<0, 1>())
      .def("irecv", &begin_receive, "buffer"_a, "source"_a.none(), "tag"_a, nb::keep_alive<0, 1>());
}

}  // namespace dlscale
