// JSON Schema of the config (draft 2020-12), so that editors complete and check keys.
#pragma once

#include <string>

namespace trireme {

// Every key with its type, values, range, default and help; configs/schema.json is this text.
std::string config_schema();

}  // namespace trireme
